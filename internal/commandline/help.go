// SPDX-License-Identifier: BSD-2-Clause

package commandline

import (
	"strings"
)

// Examples is the title of the block whose lines stay as they are.
const Examples = "Examples"

// Help is the text that a command prints with -h, divided. Its man page and its
// completion in shells are made of it, so that all three say the same.
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

// continues is how far lines are indented at least that go on.
const continues = 8

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
		case len(lines) > 1 && !strings.HasPrefix(lines[0], " ") &&
			strings.HasPrefix(lines[1], " "):
			block := Block{Title: lines[0]}
			if block.Title == Examples {
				block.Items = []Item{{Lines: lines[1:]}}
				block.Items[0].unindent()
			} else {
				block.Items = items(lines[1:])
			}
			h.Blocks = append(h.Blocks, block)
		default:
			h.Blocks = append(h.Blocks, Block{Items: []Item{{Lines: lines}}})
		}
	}
	return h
}

// items divides the lines of a block.
func items(lines []string) (all []Item) {
	for _, line := range lines {
		indent := len(line) - len(strings.TrimLeft(line, " "))
		if len(all) > 0 && indent >= continues {
			last := &all[len(all)-1]
			last.Lines = append(last.Lines, line)
			continue
		}
		if item, ok := begin(line); ok {
			all = append(all, item)
		} else if n := len(all); n > 0 && all[n-1].Head == "" {
			all[n-1].Lines = append(all[n-1].Lines, line)
		} else {
			all = append(all, Item{Lines: []string{line}})
		}
	}
	for i := range all {
		all[i].unindent()
	}
	return all
}

// unindent takes away what all lines that go on are indented.
func (it *Item) unindent() {
	from := 0
	if it.Head != "" {
		from = 1
	}
	least := -1
	for _, line := range it.Lines[from:] {
		if n := len(line) - len(strings.TrimLeft(line, " ")); least < 0 || n < least {
			least = n
		}
	}
	for i := from; i < len(it.Lines); i++ {
		it.Lines[i] = it.Lines[i][least:]
	}
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

// value returns what stands for the value of a flag, "" if it takes none; ok is
// false if there is no such flag.
func (h *Help) value(name string) (value string, ok bool) {
	for _, it := range h.Flags() {
		for _, f := range it.Flags {
			if f.Name == name {
				// "-p, --pid PID": the value stands behind the last name.
				return it.Flags[len(it.Flags)-1].Value, true
			}
		}
	}
	return "", false
}

// summary returns the beginning of what explains an item, on one line.
func (it *Item) summary() string {
	text := strings.Join(it.Lines, " ")
	for _, end := range []string{". ", "; ", ": "} {
		if before, _, ok := strings.Cut(text, end); ok {
			text = before
		}
	}
	return strings.Join(strings.Fields(text), " ")
}

// begin returns the item that a line begins, and whether it begins one. Its
// head ends at two blanks.
func begin(line string) (Item, bool) {
	text := strings.TrimLeft(line, " ")
	if indent := len(line) - len(text); indent < 2 || indent >= continues-1 {
		return Item{}, false
	}
	head, explanation, _ := strings.Cut(text, "  ")
	explanation = strings.TrimLeft(explanation, " ")
	it := Item{Head: head, Lines: []string{explanation}}
	if isFlag(text) || strings.HasPrefix(text, "-- ") {
		it.Flags = flags(head)
	}
	return it, explanation != ""
}

// flags returns the flags of a head that has nothing but flags, each with at
// most two values. The first value is kept.
func flags(head string) (all []Flag) {
	for part := range strings.SplitSeq(head, ", ") {
		words := strings.Fields(part)
		if len(words) > 3 || !isFlag(words[0]) {
			return nil
		}
		all = append(all, Flag{words[0], strings.Join(words[1:min(2, len(words))], "")})
	}
	return all
}

// isFlag reports whether a text begins with the name of a flag.
func isFlag(text string) bool {
	letters := strings.TrimPrefix(strings.TrimPrefix(text, "-"), "-")
	return len(letters) < len(text) && letters != "" && letters[0] >= 'a' && letters[0] <= 'z'
}
