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
	// maxCode is for lines of code. The style is 100 columns; the rest is for
	// what reads better in one piece.
	maxCode  = 110
	tabWidth = 4
)

// unwrapped matches lines of comments that stay whole: one long word, a
// directive for a tool, also as an example, and what says where a link leads.
var unwrapped = regexp.MustCompile(`^//(\s*\S*|[^ \t].*|\s+//[^ \t].*| \[[^\]]+\]: \S+)$`)

// wide finds lines that are too wide. The output of an example may be. So may
// be code if a text takes more than half of it: a text that is cut cannot be
// searched for. A comment beside code does not count.
func (f *file) wide() (problems []string) {
	excused, comments := make(map[int]bool), make(map[int]string)
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if text, ok := n.(*ast.BasicLit); ok && text.Kind == token.STRING {
			from, to := f.line(text.Pos()), f.line(text.End())
			for line := from; line <= to; line++ {
				code := len(strings.TrimSpace(f.lines[line-1]))
				excused[line] = excused[line] || from < to || 2*len(text.Value) > code
			}
		}
		return true
	})
	for _, group := range f.syntax.Comments {
		output := false
		for _, c := range group.List {
			text := strings.TrimSpace(c.Text)
			output = output || strings.HasSuffix(f.name, "_test.go") &&
				(text == "// Output:" || text == "// Unordered output:")
			comments[f.line(c.Pos())] = c.Text
			for line := f.line(c.Pos()); line <= f.line(c.End()); line++ {
				excused[line] = excused[line] || output || strings.HasPrefix(text, "/*")
			}
		}
	}
	for i, line := range f.lines {
		what, limit, comment := "code", maxCode, comments[i+1]
		line = strings.TrimRight(strings.TrimSuffix(line, comment), "\t ")
		if line == "" && comment != "" {
			what, limit, line = "comment", maxColumns, f.lines[i]
			if strings.HasPrefix(comment, "//\t") {
				limit = maxPreformatted
			}
			if unwrapped.MatchString(comment) {
				continue
			}
		}
		// A tab counts as four, wherever it is.
		n := utf8.RuneCountInString(line) + (tabWidth-1)*strings.Count(line, "\t")
		if n > limit && !excused[i+1] {
			problems = append(problems, f.problem(i+1, "%s is %d columns wide, not %d at most",
				what, n, limit))
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
				problems = append(problems, f.problem(f.line(group.Pos()),
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
			problems = append(problems, f.problem(f.line(call.Pos()),
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
