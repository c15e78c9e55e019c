// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/truncate"
	"github.com/gousdt/gousdt/providers"
)

// newPrinter returns the printer for what the options ask.
func newPrinter(o *options, out *bufio.Writer, m *commandline.Messages) printer {
	switch o.format {
	case formatTable:
		if o.verbose {
			return &detailsPrinter{out: out}
		}
		return &tablePrinter{out: out}
	case formatJSON:
		return newJSONPrinter(out)
	}
	return &pastePrinter{out: out, messages: m, line: pasteLines[o.format]}
}

// appendHex appends an address as 0x....
func appendHex(b []byte, address uint64) []byte {
	return strconv.AppendUint(append(b, "0x"...), address, 16)
}

// maxText is how many bytes of a text are shown where nothing stands behind it.
const maxText = 4 << 10

// appendCut appends a text, escaped and cut.
func appendCut(b []byte, s string, max int) []byte {
	return terminal.AppendEscaped(b, truncate.Text(s, max))
}

// appendBlanks appends n blanks.
func appendBlanks(b []byte, n int) []byte {
	for range n {
		b = append(b, ' ')
	}
	return b
}

// tablePrinter prints a line for each probe, with the terms of readelf. Where a
// site has no semaphore or no arguments, there is a dash: every line has all
// columns.
type tablePrinter struct {
	out     *bufio.Writer
	printed bool // a file before this one
}

// The columns before ARGUMENTS, which is last because it is of any length.
const (
	columnProvider = iota
	columnName
	columnSites
	columnLocation
	columnSemaphore
	columns
)

var titles = [columns]string{"PROVIDER", "NAME", "SITES", "LOCATION", "SEMAPHORE"}

func (t *tablePrinter) file(l *listing) (int, error) {
	if len(l.probes) == 0 {
		return 0, nil
	}
	if t.printed {
		t.out.WriteByte('\n')
	}
	t.printed = true

	var line []byte
	if l.heading {
		line = appendHeading(line, l)
		t.out.Write(line)
	}

	var widths [columns]int
	for i, title := range titles {
		widths[i] = len(title)
	}
	var cell []byte
	for i := range l.probes {
		for column := range columns {
			cell = appendCell(cell[:0], &l.probes[i], column)
			widths[column] = max(widths[column], terminal.Columns(string(cell)))
		}
	}

	line = line[:0]
	for column, title := range titles {
		line = appendColumn(line, []byte(title), widths[column], column)
	}
	t.out.Write(append(line, "ARGUMENTS\n"...))
	for i := range l.probes {
		line = line[:0]
		for column := range columns {
			cell = appendCell(cell[:0], &l.probes[i], column)
			line = appendColumn(line, cell, widths[column], column)
		}
		line = appendArguments(line, &l.probes[i])
		t.out.Write(append(line, '\n'))
	}
	return len(l.probes), nil
}

func (t *tablePrinter) failed(failure) {}
func (t *tablePrinter) close()         {}

// appendColumn appends a cell and the space up to the next one.
func appendColumn(line, cell []byte, width, column int) []byte {
	blanks := width - terminal.Columns(string(cell))
	if column == columnSites { // a number: to the right
		return append(append(appendBlanks(line, blanks), cell...), "  "...)
	}
	return appendBlanks(append(line, cell...), blanks+2)
}

func appendCell(cell []byte, p *elfnote.Probe, column int) []byte {
	switch column {
	case columnProvider:
		return appendCut(cell, p.Provider, maxCell)
	case columnName:
		return appendCut(cell, p.Name, maxCell)
	case columnSites:
		return strconv.AppendInt(cell, int64(len(p.Sites)), 10)
	case columnLocation:
		return appendHex(cell, p.Sites[0].Location)
	default:
		if p.Sites[0].Semaphore == 0 {
			return append(cell, '-')
		}
		return appendHex(cell, p.Sites[0].Semaphore)
	}
}

// maxCell is how many bytes of a name are shown in a column, each line of which
// is as wide as the longest name: those of untrusted files may have megabytes.
const maxCell = 100

// appendArguments appends the first site's argument string, and says how many
// sites have another one.
func appendArguments(line []byte, p *elfnote.Probe) []byte {
	first := p.Sites[0].Arguments
	line = appendCut(line, cmp.Or(first, "-"), maxText)
	different := 0
	for i := range p.Sites {
		if p.Sites[i].Arguments != first {
			different++
		}
	}
	if different > 0 {
		line = fmt.Appendf(line, "  (differs at %d of %d sites, see -v)", different, len(p.Sites))
	}
	return line
}

// detailsPrinter prints every site with its arguments decoded.
type detailsPrinter struct {
	out     *bufio.Writer
	printed bool // a file before this one
	line    []byte
}

func (d *detailsPrinter) file(l *listing) (int, error) {
	if len(l.probes) == 0 {
		return 0, nil
	}
	if d.printed {
		d.out.WriteByte('\n')
	}
	d.printed = true

	d.out.Write(appendHeading(nil, l))
	_, kind := kindOf(l.elf)
	fmt.Fprintf(d.out, "  %s, %s", machineName(l.elf), kind)
	if id, err := l.elf.BuildID(); err == nil {
		d.out.WriteString(", build ID " + id)
	}
	if !attachable(l.elf) {
		d.out.WriteString("\n  Nothing can be attached to this file: " +
			"it has the probes, but not the code that runs.")
	}
	d.out.WriteByte('\n')
	for i := range l.probes {
		p := &l.probes[i]
		d.line = appendCut(d.line[:0], p.Provider, maxText)
		d.line = appendCut(append(d.line, ':'), p.Name, maxText)
		d.line = append(d.line, '\n')
		for j := range p.Sites {
			d.line = appendSite(d.line, l, j, p)
		}
		d.out.Write(d.line)
	}
	return len(l.probes), nil
}

func (d *detailsPrinter) failed(failure) {}
func (d *detailsPrinter) close()         {}

func appendSite(b []byte, l *listing, number int, p *elfnote.Probe) []byte {
	site := &p.Sites[number]
	b = append(b, "  "...)
	if len(p.Sites) > 1 {
		b = fmt.Appendf(b, "site %d of %d: ", number+1, len(p.Sites))
	}
	b = fmt.Appendf(b, "Location: %#x", site.Location)
	if attachable(l.elf) {
		b = fmt.Appendf(b, ", Offset: %#x", site.Offset)
	}
	b = fmt.Appendf(b, ", Base: %#x, Semaphore: ", site.Base)
	switch {
	case site.Semaphore == 0:
		b = append(b, "none"...)
	case site.SemaphoreOffset == 0:
		b = fmt.Appendf(b, "%#x", site.Semaphore)
	default:
		b = fmt.Appendf(b, "%#x (offset %#x)", site.Semaphore, site.SemaphoreOffset)
	}
	b = append(b, "\n  Arguments: "...)
	b = append(appendCut(b, cmp.Or(site.Arguments, "none"), maxText), '\n')

	args := l.args.decode(site)
	probe := l.args.definition(site, len(args))
	for i, arg := range args {
		b = fmt.Appendf(b, "    %d: ", i)
		if probe != nil && probe.Arguments[i].Name != "" {
			b = append(append(b, probe.Arguments[i].Name...), ": "...)
		}
		b = append(b, truncate.Text(terminal.Clean(arg.String()), maxText)...)
		b = append(b, '\n')
	}
	if l.args.definitions != nil && number == len(p.Sites)-1 {
		if fires := firesText(l.args.definitions.Fires(p.Provider, p.Name)); fires != "" {
			b = append(append(append(b, "  Fires "...), fires...), '\n')
		}
	}
	return b
}

// firesText makes one text of what providers.Definitions.Fires returns.
func firesText(when, only string) string {
	switch {
	case when == "":
		return only
	case only == "":
		return "when " + when
	}
	return "when " + when + ", " + only
}

// appendHeading appends the lines above the probes of a file: which it is, and
// whose.
func appendHeading(line []byte, l *listing) []byte {
	line = terminal.AppendEscaped(append(line, "File: "...), l.path)
	m := l.mapped
	if m == nil {
		return append(line, '\n')
	}
	if m.deleted {
		line = append(line, " (deleted)"...)
	}
	if len(m.users) == 0 {
		line = append(line, " (not mapped)"...)
	}
	line = append(line, '\n')
	if m.here != m.path {
		line = fmt.Appendf(line, "  Path here: %s\n", terminal.Escape(m.here))
	}
	if l.showUsers && len(m.users) > 0 {
		line = fmt.Appendf(line, "  Mapped by: %s\n", m.usersText())
	}
	return line
}

// usersText names the processes by what they run: "postgres 812 813, python3
// 99". A process that sees the file at another path, or deleted, stands apart.
func (m *mapped) usersText() string {
	var programs []string
	var pids [][]string
	for i := range m.users {
		u := &m.users[i]
		program := terminal.Escape(u.process.Command)
		if u.path != m.path || u.deleted != m.deleted {
			path := terminal.Escape(u.path)
			if u.deleted {
				path += ", deleted"
			}
			program = fmt.Sprintf("%s (as %s)", program, path)
		}
		at := slices.Index(programs, program)
		if at < 0 {
			at = len(programs)
			programs, pids = append(programs, program), append(pids, nil)
		}
		pids[at] = append(pids[at], strconv.Itoa(u.process.PID))
	}
	for i := range programs {
		programs[i] += " " + strings.Join(pids[i], " ")
	}
	return strings.Join(programs, ", ")
}

// users adds the members about the processes that map a file.
func (p *jsonPrinter) users(m *mapped) {
	j := &p.json
	j.Fields("path", m.path, "deleted", m.deleted)
	j.Array("pids", func() {
		for i := range m.users {
			j.Value(m.users[i].process.PID)
		}
	})
	j.Array("processes", func() {
		for _, u := range m.users {
			j.NewLine(2)
			j.Object("", func() {
				j.Fields("pid", u.process.PID, "command", u.process.Command, "path", u.path,
					"deleted", u.deleted)
			})
		}
	})
}

// arguments decodes the argument strings of one file.
type arguments struct {
	file        *elfnote.File
	definitions *providers.Definitions // nil without names
	buffer      []argspec.Arg

	// missing is the last argument whose symbol is nowhere, or "".
	missing string
}

// definition returns what is known of a site's probe, or nil.
func (a *arguments) definition(site *elfnote.Site, arguments int) *providers.Probe {
	if a.definitions == nil {
		return nil
	}
	probe, ok := a.definitions.Probe(site.Provider, site.Name, arguments)
	if !ok {
		return nil
	}
	return &probe
}

// decode returns a site's arguments, which are valid until the next call.
func (a *arguments) decode(site *elfnote.Site) []argspec.Arg {
	a.buffer = argspec.Decode(a.buffer[:0], a.file, site.Location, site.Arguments)
	for i := range a.buffer {
		if arg := &a.buffer[i]; arg.Err != nil && errors.Is(arg.Err, elffile.ErrSymbolNotFound) {
			a.missing = arg.Raw
		}
	}
	return a.buffer
}
