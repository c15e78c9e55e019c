// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	_ "embed"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
)

// Flag is a flag as the help describes it.
type Flag struct {
	Name    string // with its dashes
	Value   string // what stands for its value, "" if it takes none
	Summary string // the beginning of what explains it
}

// HelpFlags returns the flags that the text of --help describes, each once.
func HelpFlags(usage string) (all []Flag) {
	lines := strings.Split(usage, "\n")
	for i, line := range lines {
		// The line that begins a description has its head, and after two blanks
		// the explanation. Lines that go on are indented by eight or more.
		head := strings.TrimLeft(line, " ")
		indent := len(line) - len(head)
		head, text, _ := strings.Cut(head, "  ")
		text = strings.TrimLeft(text, " ")
		names := strings.Split(head, ", ")
		isOther := func(name string) bool { return !isFlag(name) }
		if indent < 2 || indent > 6 || text == "" || slices.ContainsFunc(names, isOther) {
			continue
		}
		for _, line := range lines[i+1:] {
			if !strings.HasPrefix(line, "        ") {
				break
			}
			text += line
		}
		for _, end := range []string{". ", "; ", ": "} {
			text, _, _ = strings.Cut(text, end)
		}
		value := append(strings.Fields(names[len(names)-1]), "")[1]
		for _, name := range names {
			name, _, _ = strings.Cut(name, " ")
			if !slices.ContainsFunc(all, func(f Flag) bool { return f.Name == name }) {
				all = append(all, Flag{name, value, strings.Join(strings.Fields(text), " ")})
			}
		}
	}
	return all
}

// isFlag reports whether a text is a flag with at most two values. In "-p,
// --pid PID" the last one has the value.
func isFlag(text string) bool {
	words := strings.Split(text, " ")
	name := strings.TrimPrefix(strings.TrimPrefix(words[0], "-"), "-")
	return len(words) <= 3 && len(name) < len(words[0]) && name != "" && isLetter(name[0]) &&
		!strings.Contains(name, ",")
}

func isLetter(c byte) bool { return c >= 'a' && c <= 'z' }

// Man returns the man page of a command, in section 1, for the macros of
// man(7): the text of --help with its titles, and flags in bold. The text has
// paragraphs, and first the usage and what the command does. Blocks of indented
// lines begin with their title.
func Man(command, version, usage string) string {
	var b strings.Builder
	blocks := append(strings.SplitN(strings.Trim(usage, "\n"), "\n\n", 3), "", "")
	first, _, _ := strings.Cut(strings.ReplaceAll(blocks[1], "\n", " "), ". ")
	first = strings.TrimSuffix(strings.ToLower(first[:1])+first[1:], ".")
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q \"User Commands\"\n.SH NAME\n%s \\- %s\n.SH SYNOPSIS\n.nf\n",
		strings.ToUpper(command), strings.TrimSpace(version), roff(command), roff(first))
	for line := range strings.Lines(blocks[0] + "\n") {
		b.WriteString(roff(strings.TrimSpace(strings.TrimPrefix(line, "Usage:"))) + "\n")
	}
	fmt.Fprintf(&b, ".fi\n.SH DESCRIPTION\n%s\n", roff(blocks[1]))
	for block := range strings.SplitSeq(blocks[2], "\n\n") {
		title, text, _ := strings.Cut(block, "\n")
		if strings.HasPrefix(text, " ") {
			fmt.Fprintf(&b, ".SH %q\n", strings.ToUpper(title))
			block = text
		} else {
			b.WriteString(".PP\n")
		}
		fmt.Fprintf(&b, ".nf\n%s\n.fi\n", boldFlags(roff(block)))
	}
	return b.String()
}

// roff returns a text that roff prints as it is. It would take a line that
// begins with . or ' for a request.
func roff(text string) string {
	quote := strings.NewReplacer(`\`, `\e`, "-", `\-`, "\n.", "\n\\&.", "\n'", "\n\\&'")
	return quote.Replace("\n" + text)[1:]
}

// boldFlags has roff print the flags of a text for it in bold: one or two
// dashes and letters, at the beginning of a word.
func boldFlags(text string) string {
	const dash = `\-` // for roff
	var b strings.Builder
	for before := byte('\n'); text != ""; {
		name := strings.TrimPrefix(strings.TrimPrefix(text, dash), dash)
		if !strings.ContainsRune("\n (", rune(before)) ||
			len(name) == len(text) || name == "" || !isLetter(name[0]) {
			before = text[0]
			b.WriteByte(before)
			text = text[1:]
			continue
		}
		for name != "" && isLetter(name[0]) || strings.HasPrefix(name, dash) {
			name = strings.TrimPrefix(name[1:], dash[1:])
		}
		b.WriteString(`\fB` + text[:len(text)-len(name)] + `\fR`)
		before, text = 'a', name
	}
	return b.String()
}

// linked is the version that the build of a package gives:
//
//	go build -ldflags '-X github.com/gousdt/gousdt/internal/commandline.linked=v1.2.3'
var linked string

// archive is the tag that the source is of, where that comes from an archive of
// the repository: .gitattributes has git put it there.
//
//go:embed archive.txt
var archive string

// Version returns a line that says which build of a command this is, as far as
// the build recorded it.
func Version(command string) string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = &debug.BuildInfo{GoVersion: "(unknown Go)"}
	}
	return command + " " + version(linked, archive, info) + " " + info.GoVersion + "\n"
}

func version(linked, archive string, info *debug.BuildInfo) string {
	archive = strings.TrimSpace(archive)
	switch {
	case linked != "":
		return linked
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version // of the module, or of the checkout
	case archive != "" && !strings.HasPrefix(archive, "$"):
		return archive
	}
	for _, setting := range info.Settings {
		if setting.Key == "vcs.revision" {
			return "(devel) " + setting.Value
		}
	}
	return "(devel)"
}
