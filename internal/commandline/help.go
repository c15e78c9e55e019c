// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"fmt"
	"regexp"
	"strings"
)

// Examples is the title of the block whose lines stay as they are.
const Examples = "Examples"

// Help is the parsed text that a command prints with --help. The man page, the
// completion in shells and the page of documentation are made of it, so that
// all say the same.
//
// The text begins with the usage, and has blocks, each after an empty line. A
// block whose first line is its title describes flags and words: each begins in
// the third column, or in the seventh if it is a long flag alone, and what
// explains it follows after two blanks. Lines that go on are indented further.
// The block Examples is as it is.
type Help struct {
	Synopsis []string
	Blocks   []Block
}

// Block is a paragraph, or has a title.
type Block struct {
	Title string
	Items []Item
}

// Item describes flags or words, or is a paragraph.
type Item struct {
	Head  string // "" for a paragraph
	Flags []Flag
	Lines []string // as they stand in the text, without the indent that all have
}

// Flag is a flag with its dashes.
type Flag struct {
	Name, Value string
}

// ParseHelp divides a text.
func ParseHelp(text string) *Help {
	h := &Help{}
	for i, block := range strings.Split(strings.Trim(text, "\n"), "\n\n") {
		lines := strings.Split(block, "\n")
		switch {
		case i == 0:
			for _, line := range lines {
				h.Synopsis = append(h.Synopsis,
					strings.TrimSpace(strings.TrimPrefix(line, "Usage:")))
			}
		case len(lines) == 1 || lines[0][0] == ' ' || lines[1][0] != ' ':
			h.Blocks = append(h.Blocks, Block{Items: []Item{{Lines: lines}}})
		case lines[0] == Examples:
			h.Blocks = append(h.Blocks, Block{Examples, []Item{{Lines: unindent(lines[1:])}}})
		default:
			h.Blocks = append(h.Blocks, Block{lines[0], items(lines[1:])})
		}
	}
	return h
}

var (
	// beginning is the line that begins an item: its head, and after two blanks
	// the explanation.
	beginning = regexp.MustCompile(`^ {2,6}(\S.*?)  +(\S.*)$`)

	// continuation is a line that goes on.
	continuation = regexp.MustCompile(`^ {8}`)

	// flagHead is a head that has nothing but flags, each with at most two
	// values.
	flagHead = regexp.MustCompile(`^(--?[a-z][^ ,]*( [^ ]+){0,2}(, |$))+$`)
)

// items divides the lines of a block.
func items(lines []string) (all []Item) {
	for _, line := range lines {
		begins := beginning.FindStringSubmatch(line)
		last := len(all) - 1
		switch {
		case last >= 0 && continuation.MatchString(line),
			begins == nil && last >= 0 && all[last].Head == "":
			all[last].Lines = append(all[last].Lines, line)
		case begins == nil:
			all = append(all, Item{Lines: []string{line}})
		default:
			all = append(all, Item{begins[1], flags(begins[1]), []string{begins[2]}})
		}
	}
	for i := range all {
		from := 0
		if all[i].Head != "" {
			from = 1
		}
		unindent(all[i].Lines[from:])
	}
	return all
}

// unindent takes away what all lines are indented.
func unindent(lines []string) []string {
	least := 0
	for i, line := range lines {
		if n := len(line) - len(strings.TrimLeft(line, " ")); i == 0 || n < least {
			least = n
		}
	}
	for i := range lines {
		lines[i] = lines[i][least:]
	}
	return lines
}

// flags returns the flags of a head. The first value of each is kept.
func flags(head string) (all []Flag) {
	if !flagHead.MatchString(head) {
		return nil
	}
	for part := range strings.SplitSeq(head, ", ") {
		words := append(strings.Fields(part), "")
		all = append(all, Flag{words[0], words[1]})
	}
	return all
}

// Flags returns all flags with what explains them.
func (h *Help) Flags() (all []Item) {
	for _, b := range h.Blocks {
		for _, it := range b.Items {
			if len(it.Flags) > 0 {
				all = append(all, it)
			}
		}
	}
	return all
}

// value returns what stands for the value of a flag, "" if it takes none or if
// there is no such flag.
func (h *Help) value(name string) string {
	for _, it := range h.Flags() {
		for _, f := range it.Flags {
			if f.Name == name {
				// "-p, --pid PID": the value stands after the last name.
				return it.Flags[len(it.Flags)-1].Value
			}
		}
	}
	return ""
}

// summary returns the beginning of what explains an item, on one line.
func (it *Item) summary() string {
	text := strings.Join(it.Lines, " ")
	for _, end := range []string{". ", "; ", ": "} {
		text, _, _ = strings.Cut(text, end)
	}
	return strings.Join(strings.Fields(text), " ")
}

// Man returns the man page of a command, in section 1, for the macros of
// man(7).
func (h *Help) Man(command, version string) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".TH %s 1 \"\" %q \"User Commands\"\n.SH NAME\n", strings.ToUpper(command),
		strings.TrimSpace(version))
	intro, blocks := "", h.Blocks
	if len(blocks) > 0 && blocks[0].Title == "" {
		intro, blocks = strings.Join(blocks[0].Items[0].Lines, "\n"), blocks[1:]
	}
	first, _, _ := strings.Cut(strings.ReplaceAll(intro, "\n", " "), ". ")
	first = strings.TrimSuffix(strings.ToLower(first[:min(1, len(first))])+first[min(1,
		len(first)):], ".")
	fmt.Fprintf(&b, "%s \\- %s\n.SH SYNOPSIS\n.nf\n", escape(command), escape(first))
	for _, line := range h.Synopsis {
		fmt.Fprintf(&b, "%s\n", escape(line))
	}
	fmt.Fprintf(&b, ".fi\n.SH DESCRIPTION\n%s\n", paragraph(intro))
	inNotes := false
	for _, block := range blocks {
		switch {
		case block.Title != "":
			fmt.Fprintf(&b, ".SH %q\n", escape(strings.ToUpper(block.Title)))
			inNotes = false
		case !inNotes:
			b.WriteString(".SH NOTES\n")
			inNotes = true
		default:
			b.WriteString(".PP\n")
		}
		for _, it := range block.Items {
			it.man(&b, block.Title == Examples)
		}
	}
	return b.String()
}

func (it *Item) man(b *strings.Builder, verbatim bool) {
	switch {
	case verbatim:
		b.WriteString(".PP\n.nf\n")
		for _, line := range it.Lines {
			b.WriteString(paragraph(line) + "\n")
		}
		b.WriteString(".fi\n")
		return
	case it.Head != "":
		fmt.Fprintf(b, ".TP\n.B %s\n", escape(it.Head))
	default:
		b.WriteString(".PP\n")
	}
	for i, line := range it.Lines {
		// Lines with columns stay lines.
		if i > 0 &&
			(strings.HasPrefix(line, " ") || strings.Contains(strings.TrimSpace(line), "  ")) {
			b.WriteString(".br\n")
		}
		if line = strings.TrimSpace(line); line != "" {
			b.WriteString(paragraph(line) + "\n")
		}
	}
}

// escape returns a text as roff prints it as it is.
func escape(text string) string {
	return strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
}

// paragraph escapes lines so that roff takes none for a request.
func paragraph(text string) string {
	lines := strings.Split(escape(text), "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
