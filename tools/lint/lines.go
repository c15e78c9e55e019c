// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"go/ast"
	"go/token"
	"strings"
)

// maxCode is for lines of code. The style is 100 columns; the rest is for what
// reads better in one piece.
const maxCode = 110

// wideCode finds lines of code that are too wide. A line may be if a text takes
// more than half of it: a text that is cut cannot be searched for. A comment
// beside the code does not count.
func (f *file) wideCode() []string {
	excused := make(map[int]bool)
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			from, to := f.set.Position(text.Pos()), f.set.Position(text.End())
			for line := from.Line; line <= to.Line; line++ {
				code := len(strings.TrimSpace(f.lines[line-1]))
				excused[line] = excused[line] || from.Line < to.Line || 2*len(text.Value) > code
			}
		}
		return true
	})
	comments := make(map[int]int) // where the comment of a line begins
	for _, group := range f.syntax.Comments {
		for _, comment := range group.List {
			at := f.set.Position(comment.Pos())
			comments[at.Line] = at.Column - 1
		}
	}
	var problems []string
	for i, line := range f.lines {
		if begins, ok := comments[i+1]; ok {
			line = strings.TrimRight(line[:begins], "\t ")
		}
		if n := columns(line); n > maxCode && !excused[i+1] {
			problems = append(problems, f.problem(i+1,
				"code is %d columns wide, not %d at most", n, maxCode))
		}
	}
	return problems
}
