// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
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
			problems = append(problems, f.problem(f.set.File(f.syntax.Pos()).LineStart(i+1),
				"%s is %d columns wide, not %d at most", what, n, limit))
		}
	}
	return problems
}

// maxTurns is how many of the turns below comments may have in all. It only
// ever becomes lower.
const maxTurns = 32

// turns are turns of phrase that have to be read twice, and what to write.
var turns = []struct {
	pattern *regexp.Regexp
	write   string
}{
	{turn(`is as (how|what)`), "is the number of, is the"},
	{turn(`has (who|what) [a-z]+ (find|see|do|know)\b`), "wakes, lets, and a noun"},
	{turn(`(is|are) which\b`), "is the ... that"},
	{turn(`(^|[.:;,(] )(of|by|for|from|to) (which|whom)`), "two sentences"},
	{turn(`whoever`), "a process that, the caller, a user"},
	{turn(`(one|those|people) who (pass|call|trace|attach|read)`), "the caller, a user"},
	{turn(`somebody who`), "a user, a process that"},
	{turn(`who passes`), "the caller"},
	{turn(`by itself`), "alone, on its own"},
	{turn(`so many`), "that many"},
	{turn(`for so long`), "until, that long"},
	{turn(`in vain`), "without effect"},
	{turn(`(is|are) told of`), "is reported"},
	{turn(`what is left behind`), "abandoned, remains"},
	{turn(`what is another's`), "another owner's"},
}

func turn(pattern string) *regexp.Regexp { return regexp.MustCompile(`(?i)(\b|^)` + pattern + `\b`) }

// turns finds turns of phrase in the comments of a file.
func (f *file) turns() (problems []string) {
	for _, group := range f.syntax.Comments {
		text := strings.Join(strings.Fields(group.Text()), " ")
		for _, turn := range turns {
			for _, found := range turn.pattern.FindAllString(text, -1) {
				problems = append(problems, f.problem(group.Pos(), "%q in a comment is read twice: %s",
					strings.TrimLeft(found, ".:;,( "), turn.write))
			}
		}
	}
	return problems
}

// foreign are words of the documentation for users that have another word here.
// A text of several words is a string.
var foreign = []struct {
	pattern *regexp.Regexp
	write   string
}{
	{turn(`(pass(es|ed)?|hits?) (the|a|an|this|its|another|other|no) probes?`), "a probe fires"},
	{turn(`probes? (that )?(is|are|was|were) (passed|hit)`), "a probe fires"},
	{turn(`(each|every|a|the|as) texts?|texts`), "string, SQL text"},
	{turn(`says|tells?|(is|are) told`), "shows, reports"},
	{turn(`spots?`), "site"},
	{turn(`whoever|somebody|in vain|so many|for so long|left behind|by itself`), "who does it; without effect"},
	{turn(`([;,] |\()(of|by|for|from|to) (which|whom)`), "two sentences"},
	{turn(`has (probes?|the probes?|arguments?)`), "contains"},
}

// forUsers matches the files that such words are kept out of.
var forUsers = regexp.MustCompile(`^(README|SECURITY|CONTRIBUTING|` +
	`docs/(operator|one-liners|troubleshooting|faq|recipes/[^/]*))\.md$|^cmd/[^/]*/(help|short)\.txt$`)

// words finds these words outside of code.
func words(name string, text []byte) (problems []string) {
	if !forUsers.MatchString(name) {
		return nil
	}
	isMarkdown, isCode := path.Ext(name) == ".md", false
	for i, line := range strings.Split(string(text), "\n") {
		if isMarkdown && strings.HasPrefix(line, "```") {
			isCode = !isCode
		}
		if isCode || isMarkdown && strings.HasPrefix(line, "    ") {
			continue
		}
		line = inline.ReplaceAllString(line, "`")
		for _, word := range foreign {
			for _, found := range word.pattern.FindAllString(line, -1) {
				problems = append(problems, fmt.Sprintf("%s:%d: %q: write %s", name, i+1, found, word.write))
			}
		}
	}
	return problems
}

// messages finds such a word in what a program prints. A literal without a
// space is none.
func (f *file) messages() (problems []string) {
	if strings.HasSuffix(f.name, "_test.go") || strings.HasPrefix(f.name, "tools/") {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		text, ok := n.(*ast.BasicLit)
		if ok && text.Kind == token.STRING && strings.Contains(text.Value, " ") {
			if found := aText.FindString(text.Value); found != "" {
				problems = append(problems, f.problem(text.Pos(), "%q in a message: write string", found))
			}
		}
		return true
	})
	return problems
}

var aText = turn(`(each|every|a|the|constant) text|texts`)

// inline matches code in a line, and what only the source shows.
var inline = regexp.MustCompile("`[^`]*`|<!--.*?-->|\"[^\"]*\"")

// mayCallSkip lists the directories whose files may skip a test themselves: the
// package of the policy, and benchmarks: some make no sense on some machines.
var mayCallSkip = []string{"internal/testneeds/", "tools/bench/"}

// skips finds tests that are skipped by other means than package testneeds: by
// a method of a variable called t, b or tb, as a *testing.T is.
func (f *file) skips() (problems []string) {
	if slices.ContainsFunc(mayCallSkip,
		func(dir string) bool { return strings.HasPrefix(f.name, dir) }) {
		return nil
	}
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		if call, ok := n.(*ast.CallExpr); ok {
			if m := skip.FindStringSubmatch(types.ExprString(call.Fun)); m != nil {
				problems = append(problems, f.problem(call.Pos(),
					"a test is skipped by %s: let internal/testneeds decide", m[1]))
			}
		}
		return true
	})
	return problems
}

var skip = regexp.MustCompile(`(?:^|\.)(?:t|b|tb)\.(Skip|Skipf|SkipNow)$`)

// module is the path of the module whose imports are checked.
const module = "github.com/gousdt/gousdt/"

// mayImport are the packages of this module that usdt, and those below it, may
// import. What is not named here is not brought along by an import of usdt.
var mayImport = map[string]string{
	"argspec":                "",
	"elfnote":                "internal/elffile internal/pattern",
	"internal/attaching":     "internal/procfs internal/sys",
	"internal/elffile":       "",
	"internal/pattern":       "",
	"internal/procfs":        "internal/sys",
	"internal/sys":           "",
	"usdt/internal/sitespec": "argspec",
	"usdt": "argspec elfnote internal/attaching internal/elffile internal/pattern " +
		"internal/procfs internal/sys usdt/bpf usdt/internal/sitespec",
}

// imports finds imports against the direction in docs/design.md. Tests may
// import anything.
func (f *file) imports() (problems []string) {
	allowed, isBelow := mayImport[path.Dir(f.name)]
	if !isBelow || strings.HasSuffix(f.name, "_test.go") {
		return nil
	}
	for _, spec := range f.syntax.Imports {
		name, own := strings.CutPrefix(strings.Trim(spec.Path.Value, `"`), module)
		if own && !slices.Contains(strings.Fields(allowed), name) {
			problems = append(problems, f.problem(spec.Pos(),
				"%s does not import %s: see mayImport in tools/lint", path.Dir(f.name), name))
		}
	}
	return problems
}

// maxBranches and maxFields bound what a reader of one function, or of one
// type, has to keep in mind.
const (
	maxBranches = 25
	maxFields   = 25
)

// large finds functions with too many branches, and structs with too many
// fields: an embedded type is one. A branch is an if, a loop, a case, or a part
// of a condition. Tests, benchmarks and tools may be as large as they like.
func (f *file) large() (problems []string) {
	if strings.HasSuffix(f.name, "_test.go") || strings.HasPrefix(f.name, "tools/") {
		return nil
	}
	for _, of := range f.syntax.Decls {
		name, branches := "", 0
		ast.Inspect(of, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				name = n.Name.Name
			case *ast.IfStmt, *ast.ForStmt, *ast.RangeStmt:
				branches++
			case *ast.CaseClause:
				branches += min(len(n.List), 1)
			case *ast.CommClause:
				branches++
			case *ast.BinaryExpr:
				if n.Op == token.LAND || n.Op == token.LOR {
					branches++
				}
			case *ast.StructType:
				if fields := n.Fields.NumFields(); fields > maxFields {
					problems = append(problems,
						f.problem(n.Pos(), "a struct has %d fields, not %d at most", fields, maxFields))
				}
			}
			return true
		})
		if name != "" && branches > maxBranches {
			problems = append(problems,
				f.problem(of.Pos(), "%s has %d branches, not %d at most", name, branches, maxBranches))
		}
	}
	return problems
}

var (
	// licensed are the endings of sources; scripts are sources, too.
	licensed = []string{".go", ".c", ".h", ".cc", ".S", ".s", ".java", ".rs", ".py", ".rb", ".php", ".js",
		".yml", ".yaml", ".mk"}
	generated = regexp.MustCompile(`(?m)^\W* ?(Code generated|Generated) .*DO NOT EDIT\.`)
	unpinned  = regexp.MustCompile(`(?m)^\s*-? *uses: *([^\s@]+@\S*)`)
	pinned    = regexp.MustCompile(`@[0-9a-f]{40}$`)
)

// bundled is by other authors: NOTICE has their licences.
const bundled = "stack/flamegraph/renderer.js"

// licence returns an error for a source file that does not name its licence,
// unless it is generated, bundled or a fixture.
func licence(name string, text []byte) (problems []string) {
	base := path.Base(name)
	isSource := slices.Contains(licensed, path.Ext(name)) || base == "Makefile" || base == "Dockerfile" ||
		bytes.HasPrefix(text, []byte("#!"))
	head := text[:min(len(text), 2000)]
	if isSource && !bytes.Contains(head, []byte("SPDX-License-Identifier: ")) && !generated.Match(head) &&
		!strings.Contains(name, "testdata/") && name != bundled {
		problems = append(problems, name+":1: no SPDX-License-Identifier")
	}
	return problems
}

// actions returns an error for each action of a workflow that is not named by
// its commit: a tag can be moved.
func actions(name string, text []byte) (problems []string) {
	if !strings.HasPrefix(name, ".github/workflows/") {
		return nil
	}
	for _, use := range unpinned.FindAllSubmatch(text, -1) {
		if !pinned.Match(use[1]) {
			problems = append(problems, fmt.Sprintf("%s: %s: name the commit of an action", name, use[1]))
		}
	}
	return problems
}

// checkText checks a file of any kind, by its name below the directory.
func checkText(dir, name string) ([]string, error) {
	info, err := os.Lstat(filepath.Join(dir, name))
	if err != nil || !info.Mode().IsRegular() {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(dir, name))
	return slices.Concat(licence(name, text), actions(name, text), words(name, text)), err
}
