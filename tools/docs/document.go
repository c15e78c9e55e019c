// SPDX-License-Identifier: BSD-2-Clause

// Package docs reads the Markdown files of this repository and finds what is
// not true in them, as far as that can be known without running anything.
// Command transcript runs the rest.
//
// Every fenced block of code says where it comes from, in a comment before it:
//
//	<!-- workload: NAME -->       commands of the kind "console", which command transcript runs
//	<!-- file: PATH -->           the content of a file, without its licence
//	<!-- file: PATH START -->     its lines from the one that begins with START to the next "}" or "};"
//	<!-- body: PATH START -->     the lines between these two, without what all are indented
//	<!-- not run: REASON -->      nothing compares it
//
// A path is relative to the Markdown file. What files have is compiled, or
// tested, where the file is. Blocks of the kinds json and yaml are parsed.
package docs

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Document is a Markdown file.
type Document struct {
	Path  string
	lines []line
}

// line is one of text, or stands for what is between the fences of a block.
type line struct {
	number int // from 1
	text   string
	block  *Block
}

// Block is a fenced block of code.
type Block struct {
	Line int               // of its first line, from 1
	Kind string            // the word after the fence
	Mark map[string]string // the comments before it, by their keys
	Text string            // what is between the fences
}

var mark = regexp.MustCompile(`^<!-- (workload|file|body|not run): (.*?) ?-->$`)

// Read reads a file.
func Read(path string) (*Document, error) {
	source, err := os.ReadFile(path)
	return Parse(path, string(source)), err
}

// Parse divides the text of a file.
func Parse(path, source string) *Document {
	d := &Document{Path: path}
	texts := strings.SplitAfter(source, "\n")
	marks := make(map[string]string)
	for i := 0; i < len(texts); i++ {
		text := strings.TrimSpace(texts[i])
		d.lines = append(d.lines, line{number: i + 1, text: texts[i]})
		if m := mark.FindStringSubmatch(text); m != nil {
			marks[m[1]] = m[2]
			continue
		}
		kind, isFence := strings.CutPrefix(texts[i], "```")
		if isFence {
			block := &Block{Line: i + 2, Kind: strings.TrimSpace(kind), Mark: marks}
			for i++; i < len(texts) && !strings.HasPrefix(texts[i], "```"); i++ {
				block.Text += texts[i]
			}
			d.lines = append(d.lines, line{block: block})
			if i < len(texts) {
				d.lines = append(d.lines, line{number: i + 1, text: texts[i]})
			}
		}
		if isFence || text != "" {
			marks = make(map[string]string)
		}
	}
	return d
}

// Blocks returns the blocks of a document.
func (d *Document) Blocks() (all []*Block) {
	for _, l := range d.lines {
		if l.block != nil {
			all = append(all, l.block)
		}
	}
	return all
}

// String returns the text of the file.
func (d *Document) String() string {
	var b strings.Builder
	for _, l := range d.lines {
		b.WriteString(l.text)
		if l.block != nil {
			b.WriteString(l.block.Text)
		}
	}
	return b.String()
}

// source returns the text that a block must have by its mark. It reports false
// for a block whose text comes from no file.
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
	text = string(content)
	if first, rest, _ := strings.Cut(text, "\n"); strings.Contains(first, "SPDX-License-Identifier") {
		text = strings.TrimPrefix(rest, "\n")
	}
	if start == "" && isFile {
		return text, true, nil
	}
	// Up to the next line that ends a function or a structure.
	var lines []string
	for l := range strings.Lines(text) {
		if len(lines) == 0 && !strings.HasPrefix(l, start) {
			continue
		}
		if lines = append(lines, l); !strings.HasPrefix(l, "}") {
			continue
		}
		if !isBody {
			return strings.Join(lines, ""), true, nil
		}
		text = ""
		for _, l := range lines[1 : len(lines)-1] {
			text += strings.TrimPrefix(l, "\t")
		}
		return text, true, nil
	}
	return "", true, fmt.Errorf("%s has no line that begins with %q, or no end of it", name, start)
}
