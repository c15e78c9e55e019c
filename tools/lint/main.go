// SPDX-License-Identifier: BSD-2-Clause

// Lint checks rules of this repository that no other tool knows: comments wrap
// at 80 columns and code at 110, comments have no turns that are read twice,
// the documentation for users has one word for one thing, functions have at
// most 25 branches and structs 25 fields, tests are skipped by package
// testneeds alone, sources name their licence, workflows name commits of
// actions, and the documentation is as package docs says.
package main

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/tools/docs"
)

const usage = `Usage: lint [-w] [-turns] DIR

Checks the repository in the directory and prints what is wrong, a line each.
With -w, first writes anew what the documentation has from elsewhere. With
-turns, lists all turns of phrase that are read twice, also while there are few
enough.
`

func main() {
	write := flag.Bool("w", false, "")
	allTurns := flag.Bool("turns", false, "")
	flag.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	flag.Parse()
	if flag.NArg() != 1 {
		flag.Usage()
		os.Exit(2)
	}
	problems, err := lint(flag.Arg(0), *write, *allTurns)
	for _, p := range problems {
		fmt.Println(p)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func lint(dir string, write, allTurns bool) (problems []string, err error) {
	cmd := exec.Command("git", "ls-files")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	var turns []string
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSuffix(name, "\n")
		more, err := checkText(dir, name)
		if err != nil {
			return nil, err
		}
		problems = append(problems, more...)
		if filepath.Ext(name) != ".go" {
			continue
		}
		f, err := parse(dir, name)
		if err != nil {
			return nil, err
		}
		if !ast.IsGenerated(f.syntax) {
			problems = append(append(problems, f.wide()...), f.skips()...)
			problems = slices.Concat(problems, f.imports(), f.large(), f.messages())
			turns = append(turns, f.turns()...)
		}
	}
	if allTurns || len(turns) > maxTurns {
		problems = append(append(problems, turns...),
			fmt.Sprintf("comments have %d turns that are read twice, not %d at most", len(turns), maxTurns))
	}
	more, err := docs.Problems(dir, write)
	return append(problems, more...), err
}

// file is a Go file.
type file struct {
	name   string // below the directory of the repository
	lines  []string
	set    *token.FileSet
	syntax *ast.File
}

func parse(dir, name string) (*file, error) {
	text, err := os.ReadFile(filepath.Join(dir, name))
	if err != nil {
		return nil, err
	}
	f := &file{name: name, lines: strings.Split(string(text), "\n"), set: token.NewFileSet()}
	f.syntax, err = parser.ParseFile(f.set, name, text, parser.ParseComments)
	return f, err
}

func (f *file) line(at token.Pos) int { return f.set.Position(at).Line }

// problem describes what is wrong at a place.
func (f *file) problem(at token.Pos, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.name, f.line(at), fmt.Sprintf(format, args...))
}
