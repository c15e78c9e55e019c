// SPDX-License-Identifier: BSD-2-Clause

package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Document is a Markdown file, divided into blocks and the text between them.
type Document struct {
	Path   string
	Pieces []Piece
}

// Piece is a block, or text.
type Piece struct {
	Block *Block // nil for text
	Text  string // with the fences, but not the inside of blocks
	Line  int    // of its first line, from 1
}

// Block is a fenced block of code.
type Block struct {
	Line int               // of its first line, from 1
	Kind string            // the word behind the fence
	Mark map[string]string // the comments before it, by their keys
	Text string            // what is between the fences
}

var mark = regexp.MustCompile(`^<!-- (workload|file|body|not run): (.*?) ?-->$`)

// Read reads a file.
func Read(path string) (*Document, error) {
	source, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, string(source)), nil
}

// Parse divides the text of a file.
func Parse(path, source string) *Document {
	d := &Document{Path: path}
	lines := strings.SplitAfter(source, "\n")
	var text strings.Builder
	begin, marks := 1, make(map[string]string)
	endText := func(next int) {
		d.Pieces = append(d.Pieces, Piece{Text: text.String(), Line: begin})
		text.Reset()
		begin = next
	}
	for i := 0; i < len(lines); i++ {
		line := strings.TrimSpace(lines[i])
		text.WriteString(lines[i])
		if m := mark.FindStringSubmatch(line); m != nil {
			marks[m[1]] = m[2]
			continue
		}
		kind, isFence := strings.CutPrefix(lines[i], "```")
		if !isFence {
			if line != "" {
				marks = make(map[string]string)
			}
			continue
		}
		endText(i + 2)
		block := &Block{Line: i + 2, Kind: strings.TrimSpace(kind), Mark: marks}
		marks = make(map[string]string)
		for i++; i < len(lines) && !strings.HasPrefix(lines[i], "```"); i++ {
			block.Text += lines[i]
		}
		d.Pieces = append(d.Pieces, Piece{Block: block, Line: block.Line})
		begin = i + 1
		if i < len(lines) {
			text.WriteString(lines[i])
		}
	}
	endText(0)
	return d
}

// Blocks returns the blocks of a document.
func (d *Document) Blocks() (all []*Block) {
	for _, p := range d.Pieces {
		if p.Block != nil {
			all = append(all, p.Block)
		}
	}
	return all
}

// String returns the text of the file.
func (d *Document) String() string {
	var b strings.Builder
	for _, p := range d.Pieces {
		if p.Block != nil {
			b.WriteString(p.Block.Text)
		} else {
			b.WriteString(p.Text)
		}
	}
	return b.String()
}

// source returns what a block of a document has to have by its mark. It reports
// false for a block whose text comes from no file.
func (d *Document) source(b *Block) (text string, ok bool, err error) {
	place, isFile := b.Mark["file"]
	body, isBody := b.Mark["body"]
	if !isFile && !isBody {
		return "", false, nil
	}
	name, start, _ := strings.Cut(place+body, " ")
	content, err := os.ReadFile(filepath.Join(filepath.Dir(d.Path), name))
	if err != nil {
		return "", true, err
	}
	text = withoutLicence(string(content))
	if start == "" && isFile {
		return text, true, nil
	}
	lines, ok := region(text, start)
	if !ok {
		return "", true, fmt.Errorf("%s has no line that begins with %q, or no end of it",
			name, start)
	}
	if isBody {
		lines = unindented(lines[1 : len(lines)-1])
	}
	return strings.Join(lines, ""), true, nil
}

// withoutLicence returns the text without the line about the licence.
func withoutLicence(text string) string {
	first, rest, _ := strings.Cut(text, "\n")
	if strings.Contains(first, "SPDX-License-Identifier") {
		return strings.TrimPrefix(rest, "\n")
	}
	return text
}

// region returns the lines from the one that begins with a text to the next one
// that ends a function or a structure.
func region(text, start string) (lines []string, ok bool) {
	for line := range strings.Lines(text) {
		if len(lines) > 0 || strings.HasPrefix(line, start) {
			lines = append(lines, line)
		}
		if len(lines) > 0 && strings.HasPrefix(line, "}") {
			return lines, true
		}
	}
	return nil, false
}

// unindented returns lines without the tabs that all have in front.
func unindented(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = strings.TrimPrefix(line, "\t")
	}
	return all
}
