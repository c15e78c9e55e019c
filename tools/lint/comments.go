// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"regexp"
	"strings"
	"unicode/utf8"
)

const (
	maxColumns = 80
	// maxPreformatted is for what cannot be wrapped: code and tables.
	maxPreformatted = 120
	tabWidth        = 4
)

// linkTarget matches the line of a comment that says where a link leads.
var linkTarget = regexp.MustCompile(`^ \[[^\]]+\]: \S+$`)

// wideComments finds comments, on lines of their own, that are too wide. A line
// that is one long word may be, as may be the output of an example, directives
// and the targets of links.
func (f *file) wideComments() []string {
	var problems []string
	for _, group := range f.syntax.Comments {
		output := false
		for _, comment := range group.List {
			at := f.set.Position(comment.Pos())
			line := f.lines[at.Line-1]
			text, ok := strings.CutPrefix(strings.TrimLeft(line, "\t "), "//")
			if !ok || strings.HasPrefix(comment.Text, "/*") {
				continue
			}
			switch strings.TrimSpace(text) {
			case "Output:", "Unordered output:":
				output = strings.HasSuffix(f.name, "_test.go")
			}
			limit := maxColumns
			switch {
			case output, isDirective(comment.Text), isDirective(strings.TrimSpace(text)),
				!strings.Contains(strings.TrimSpace(text), " "), linkTarget.MatchString(text):
				continue
			case strings.HasPrefix(text, "\t"):
				limit = maxPreformatted
			}
			if n := columns(line); n > limit {
				problems = append(problems, f.problem(at.Line,
					"comment is %d columns wide, not %d at most", n, limit))
			}
		}
	}
	return problems
}

// isDirective reports whether a comment is for a tool, as //go:generate is.
func isDirective(comment string) bool {
	text, ok := strings.CutPrefix(comment, "//")
	return ok && text != "" && text[0] != ' ' && text[0] != '\t'
}

// columns is the width of a line. A tab counts as four, wherever it is.
func columns(line string) int {
	return utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
}
