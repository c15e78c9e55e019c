// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"regexp"
	"slices"
	"strings"
	"sync"
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

// maxTurns is how many turns of phrase comments may have in all that are to be
// written otherwise. It only ever becomes lower.
const maxTurns = 153

// turn is a turn of phrase that has to be read twice, and what to write.
type turn struct{ pattern, write string }

var turns = []turn{
	{`is as (how|what)`, "is the number of, is the"},
	{`has (who|what) [a-z]+ (find|see|do|know)\b`, "wakes, lets, and a noun"},
	{`(is|are) which\b`, "is the ... that"},
	{`(^|[.:;,(] )(of|by|for|from|to) (which|whom)`, "two sentences"},
	{`whoever`, "a process that, the caller, a user"},
	{`(one|those|people) who (pass|call|trace|attach|read)`, "the caller, a user"},
	{`somebody who`, "a user, a process that"},
	{`who passes`, "the caller"},
	{`by itself`, "alone, on its own"},
	{`so many`, "that many"},
	{`for so long`, "until, that long"},
	{`in vain`, "without effect"},
	{`(is|are) told of`, "is reported"},
	{`what is left behind`, "abandoned, remains"},
	{`what is another's`, "another owner's"},
}

var turnPatterns = sync.OnceValue(func() (patterns []*regexp.Regexp) {
	for _, t := range turns {
		patterns = append(patterns, regexp.MustCompile(`(?i)(\b|^)`+t.pattern+`\b`))
	}
	return patterns
})

// turns finds turns of phrase in the comments of a file.
func (f *file) turns() []string {
	var problems []string
	for _, group := range f.syntax.Comments {
		text := strings.Join(strings.Fields(strings.ReplaceAll(group.Text(), "\n", " ")), " ")
		for i, pattern := range turnPatterns() {
			for _, found := range pattern.FindAllString(text, -1) {
				problems = append(problems, f.problem(f.set.Position(group.Pos()).Line,
					"%q in a comment is read twice: %s", strings.TrimLeft(found, ".:;,( "), turns[i].write))
			}
		}
	}
	return problems
}

// turnProblems returns the turns of all files if they are too many.
func turnProblems(found []string, most int) []string {
	if len(found) <= most {
		return nil
	}
	return append(found, fmt.Sprintf("comments have %d turns that are read twice, not %d at most",
		len(found), most))
}

// mayCallSkip lists the directories whose files may skip a test themselves: the
// package of the policy, and benchmarks: some make no sense on some machines.
var mayCallSkip = []string{"internal/testneeds/", "bench/"}

// skips finds tests that are skipped by other means than package testneeds.
func (f *file) skips() []string {
	if slices.ContainsFunc(mayCallSkip,
		func(dir string) bool { return strings.HasPrefix(f.name, dir) }) {
		return nil
	}
	var problems []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ok && isTesting(method.X) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"},
			method.Sel.Name) {
			problems = append(problems, f.problem(f.set.Position(call.Pos()).Line,
				"a test is skipped by %s: let internal/testneeds decide", method.Sel.Name))
		}
		return true
	})
	return problems
}

// isTesting reports whether an expression looks like a *testing.T, *testing.B
// or testing.TB: t, b, tb, or a field of such a name.
func isTesting(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return slices.Contains([]string{"t", "b", "tb"}, name)
}
