// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/terminal"
)

const (
	// maxText is how many bytes are shown of a text that ends a line.
	maxText = 4 << 10

	// maxCell is how many bytes of a name are shown in a column. Every line is
	// as wide as the longest name, and an untrusted file's may have megabytes.
	maxCell = 100
)

func shown(s string, max int) string { return terminal.Escape(elffile.Shorten(s, max)) }

// print prints the probes of a file as --format asks, and returns how many it
// printed.
func (l *lister) print(list *listing) (int, error) {
	paste := pasteLines[l.options.format]
	switch {
	case l.json != nil:
		l.json.file(list)
		return len(list.probes), nil
	case len(list.probes) == 0:
		return 0, nil
	case paste != nil:
		return l.paste(list, paste)
	}
	if l.printed {
		l.out.WriteByte('\n')
	}
	l.printed = true
	if l.options.verbose {
		l.details(list)
	} else {
		l.table(list)
	}
	return len(list.probes), nil
}

// table prints a line for each probe, with the terms of readelf. Where a site
// has no semaphore or no arguments, there is a dash: every line has all
// columns. Nothing is allocated for a line: to touch new memory for the numbers
// took longer than to list libjvm.
func (l *lister) table(list *listing) {
	if list.heading {
		l.heading(list)
	}
	provider, name, sites := len("PROVIDER"), len("NAME"), len("SITES")
	var location, semaphore uint64 // the highest, which are the widest
	for i := range list.probes {
		p := &list.probes[i]
		provider = max(provider, terminal.Columns(shown(p.Provider, maxCell)))
		name = max(name, terminal.Columns(shown(p.Name, maxCell)))
		sites = max(sites, len(strconv.Itoa(len(p.Sites))))
		location = max(location, p.Sites[0].Location)
		semaphore = max(semaphore, p.Sites[0].Semaphore)
	}
	var digits [20]byte
	hex := func(n uint64) []byte { return strconv.AppendUint(append(digits[:0], "0x"...), n, 16) }
	locations := max(len("LOCATION"), len(hex(location)))
	semaphores := max(len("SEMAPHORE"), len(hex(semaphore)))

	var b []byte
	left := func(text string, width int) {
		b = terminal.AppendBlanks(append(b, text...), width+2-terminal.Columns(text))
	}
	right := func(text string, width int) {
		b = append(append(terminal.AppendBlanks(b, width-len(text)), text...), "  "...)
	}
	left("PROVIDER", provider)
	left("NAME", name)
	right("SITES", sites)
	left("LOCATION", locations)
	left("SEMAPHORE", semaphores)
	b = append(b, "ARGUMENTS\n"...)
	for i := range list.probes {
		p := &list.probes[i]
		left(shown(p.Provider, maxCell), provider)
		left(shown(p.Name, maxCell), name)
		right(strconv.Itoa(len(p.Sites)), sites)
		left(string(hex(p.Sites[0].Location)), locations)
		if p.Sites[0].Semaphore == 0 {
			left("-", semaphores)
		} else {
			left(string(hex(p.Sites[0].Semaphore)), semaphores)
		}
		b = append(append(b, argumentsOf(p)...), '\n')
		l.out.Write(b) // which keeps the error
		b = b[:0]
	}
}

// argumentsOf returns the first site's argument string, and says how many sites
// have another one.
func argumentsOf(p *defs.FileProbe) string {
	first := p.Sites[0].Arguments
	different := 0
	for i := range p.Sites {
		if p.Sites[i].Arguments != first {
			different++
		}
	}
	text := shown(cmp.Or(first, "-"), maxText)
	if different > 0 {
		text += fmt.Sprintf("  (differs at %d of %d sites, see -v)", different, len(p.Sites))
	}
	return text
}

// details prints every site with its arguments decoded.
func (l *lister) details(list *listing) {
	l.heading(list)
	_, kind := kindOf(list.elf)
	fmt.Fprintf(l.out, "  %s, %s", machineName(list.elf), kind)
	if id, err := list.elf.BuildID(); err == nil {
		l.out.WriteString(", build ID " + id)
	}
	if !attachable(list.elf) {
		l.out.WriteString("\n  Nothing can be attached to this file: " +
			"it has the probes, but not the code that runs.")
	}
	l.out.WriteByte('\n')
	if list.elf.Header().Type != elf.ET_REL { // whose sections overlap
		list.shared = defs.SharedLocations(list.elf.Sites())
	}
	for i := range list.probes {
		p := &list.probes[i]
		fmt.Fprintf(l.out, "%s:%s\n", shown(p.Provider, maxText), shown(p.Name, maxText))
		for j := range p.Sites {
			l.site(list, j, p)
		}
		if l.definitions == nil {
			continue
		}
		when, only := l.definitions.Fires(p.Provider, p.Name)
		if when != "" {
			when = "when " + when
		}
		if text := strings.Trim(when+", "+only, ", "); text != "" {
			l.out.WriteString("  Fires " + text + "\n")
		}
	}
}

func (l *lister) site(list *listing, number int, p *defs.FileProbe) {
	site := &p.Sites[number]
	l.out.WriteString("  ")
	if len(p.Sites) > 1 {
		fmt.Fprintf(l.out, "site %d of %d: ", number+1, len(p.Sites))
	}
	fmt.Fprintf(l.out, "Location: %#x", site.Location)
	if attachable(list.elf) {
		fmt.Fprintf(l.out, ", Offset: %#x", site.Offset)
	}
	fmt.Fprintf(l.out, ", Base: %#x, Semaphore: ", site.Base)
	switch {
	case site.Semaphore == 0:
		l.out.WriteString("none")
	case site.SemaphoreOffset == 0:
		fmt.Fprintf(l.out, "%#x", site.Semaphore)
	default:
		fmt.Fprintf(l.out, "%#x (offset %#x)", site.Semaphore, site.SemaphoreOffset)
	}
	if list.elf.HasWritableCode(site) {
		l.out.WriteString(", in a writable segment (RWX)")
	}
	if size := site.SemaphoreMiscounted; size != 0 {
		fmt.Fprintf(l.out, ", which a kernel with pages of %d KiB or more counts in the wrong segment "+
			"until a process has started (lld, mold)", size>>10)
	}
	fmt.Fprintf(l.out, "\n  Arguments: %s\n", shown(cmp.Or(site.Arguments, "none"), maxText))
	if names := list.shared[site.Location]; len(names) > 0 {
		fmt.Fprintf(l.out, "  Same instruction: %s, which each have the hits of all\n",
			shown(strings.Join(names, ", "), maxText))
	}
	args, known := list.args.decode(site)
	for i, arg := range args {
		fmt.Fprintf(l.out, "    %d: ", i)
		if known != nil && known.Arguments[i].Name != "" {
			l.out.WriteString(known.Arguments[i].Name + ": ")
		}
		l.out.WriteString(elffile.Shorten(terminal.Clean(arg.String()), maxText))
		if known != nil && known.Arguments[i].Note != "" {
			l.out.WriteString(" (" + terminal.Clean(known.Arguments[i].Note) + ")")
		}
		l.out.WriteByte('\n')
	}
}

// heading prints the lines above the probes of a file: which it is, and which
// processes map it.
func (l *lister) heading(list *listing) {
	l.out.WriteString("File: " + terminal.Escape(list.path))
	m := list.mapped
	switch {
	case m == nil:
	case len(m.users) == 0:
		l.out.WriteString(" (not mapped)")
	case m.deleted:
		l.out.WriteString(" (deleted)")
	}
	l.out.WriteByte('\n')
	if m != nil && m.here != m.path {
		l.out.WriteString("  Path here: " + terminal.Escape(m.here) + "\n")
	}
	if list.showUsers && len(m.users) > 0 {
		l.out.WriteString("  Mapped by: " + m.usersText() + "\n")
	}
}

// usersText names the processes by what they run: "postgres 812 813, python3
// 99". A process that sees the file at another path, or deleted, stands apart.
func (m *mapped) usersText() string {
	var programs []string
	pids := make(map[string]string) // of each
	for _, u := range m.users {
		program := terminal.Escape(u.Process.Command)
		if u.Path != m.path || u.Deleted != m.deleted {
			program += " (as " + terminal.Escape(u.Path)
			if u.Deleted {
				program += ", deleted"
			}
			program += ")"
		}
		if pids[program] == "" {
			programs = append(programs, program)
		}
		pids[program] += " " + strconv.Itoa(u.Process.PID)
	}
	for i, program := range programs {
		programs[i] += pids[program]
	}
	return strings.Join(programs, ", ")
}

type arguments struct {
	file        argspec.File
	definitions *defs.Definitions // nil without names
	buffer      []argspec.Arg

	// missing is the last argument whose symbol is nowhere, or "".
	missing string
}

// decode returns a site's arguments, which are valid until the next call, and
// the definition of its probe, or nil.
func (a *arguments) decode(site *elfnote.Site) ([]argspec.Arg, *defs.Probe) {
	a.buffer = argspec.Decode(a.buffer[:0], a.file, site.Location, site.Arguments)
	for i := range a.buffer {
		if arg := &a.buffer[i]; arg.Err != nil && errors.Is(arg.Err, elffile.ErrSymbolNotFound) {
			a.missing = arg.Raw
		}
	}
	if a.definitions != nil {
		if probe, ok := a.definitions.Probe(site.Provider, site.Name, len(a.buffer)); ok {
			return a.buffer, &probe
		}
	}
	return a.buffer, nil
}

// pasteLine returns the line for a probe. If the tool has no way to write a
// name, it returns an error that says why.
type pasteLine func(path string, p *defs.FileProbe, sameName bool) (string, error)

// pasteLines has the line of each format. It refuses names that the tools' own
// parsers do not read: seen with bpftrace 0.27, bcc 0.37 and perf 7.2.
var pasteLines = map[string]pasteLine{formatBpftrace: bpftraceLine, formatBCC: bccLine,
	formatPerf: perfLine, formatLibbpf: libbpfLine}

var errNoCode = errors.New("file holds no code to run (use the executable or library itself)")

// errLongName means that a name is of a hostile file: no tool takes a word of
// that length.
var errLongName = errors.New("name of more than " + strconv.Itoa(maxText) + " bytes")

func (l *lister) paste(list *listing, line pasteLine) (printed int, err error) {
	if !attachable(list.elf) {
		return 0, errNoCode
	}
	// The line may be used from another directory.
	path := list.path
	if list.mapped != nil {
		path = list.mapped.here
	}
	if path, err = filepath.Abs(path); err != nil {
		return 0, err
	}
	providers := make(map[string]string) // of a name, "" for several
	for i := range list.probes {
		probe := &list.probes[i]
		if earlier, seen := providers[probe.Name]; seen && earlier != probe.Provider {
			providers[probe.Name] = ""
		} else {
			providers[probe.Name] = probe.Provider
		}
	}
	for i := range list.probes {
		probe := &list.probes[i]
		text, err := "", errLongName
		if max(len(probe.Provider), len(probe.Name)) <= maxText {
			text, err = line(path, probe, providers[probe.Name] != probe.Provider)
		}
		if err != nil {
			l.WarnOf("probes left out", "%s: left out %s:%s: %v", list.path,
				elffile.ShortName(probe.Provider), elffile.ShortName(probe.Name), err)
			continue
		}
		l.out.WriteString(text + "\n")
		printed++
	}
	return printed, nil
}

// bpftraceLine: usdt:PATH:PROVIDER:NAME, each in quotation marks where its
// lexer would stop at a character.
func bpftraceLine(path string, p *defs.FileProbe, _ bool) (string, error) {
	line := "usdt"
	for _, part := range []string{path, p.Provider, p.Name} {
		if !isPrintable(part) || strings.ContainsAny(part, `"*?[`) {
			return "", errors.New("bpftrace has no way to write it")
		}
		if !commandline.IsPlain(part, "_-./") {
			part = `"` + part + `"`
		}
		line += ":" + part
	}
	return line, nil
}

// bccLine: u:PATH:NAME, which all of bcc's tools take. Where two providers have
// the name, the provider is needed, which only some of them (trace) take.
func bccLine(path string, p *defs.FileProbe, sameName bool) (string, error) {
	parts := []string{path, p.Name}
	if sameName {
		parts = []string{path, p.Provider, p.Name}
	}
	for _, part := range parts {
		// A blank or bracket ends the probe, a plus in the name is an offset.
		if !isPrintable(part) || strings.ContainsAny(part, ":*( ") ||
			(part != path && strings.Contains(part, "+")) {
			return "", errors.New("bcc has no way to write it")
		}
	}
	return "u:" + strings.Join(parts, ":"), nil
}

// isPrintable reports whether a string can be shown and typed as it is.
func isPrintable(s string) bool {
	return s != "" && terminal.Escape(s) == s
}

// perfLine: a command that makes the event sdt_PROVIDER:NAME.
func perfLine(path string, p *defs.FileProbe, _ bool) (string, error) {
	if !commandline.IsPlain(p.Provider, "_") || !commandline.IsPlain(p.Name, "_") {
		return "", errors.New("perf's event names have only letters, digits and _")
	}
	return "perf probe -x " + commandline.ShellWord(path) + " %sdt_" + p.Provider + ":" + p.Name, nil
}

// libbpfLine: the section of a BPF program in C.
func libbpfLine(path string, p *defs.FileProbe, _ bool) (string, error) {
	if strings.Contains(path+p.Provider+p.Name, ":") {
		return "", errors.New("libbpf divides at every colon")
	}
	return `SEC("usdt/` + commandline.Escaped(path+":"+p.Provider+":"+p.Name, '"') + `")`, nil
}
