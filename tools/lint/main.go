// SPDX-License-Identifier: BSD-2-Clause

// Lint checks rules of this repository that no other tool knows: comments wrap
// at 80 columns and code at 110, comments have no turns that are read twice,
// tests are skipped by package testneeds alone, and the documentation is as
// package docs says.
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
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, p := range problems {
		fmt.Println(p)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

// lint returns the problems of the repository in dir. If write is true, it has
// the documentation written anew first. If allTurns is true, no turn of phrase
// is allowed.
func lint(dir string, write, allTurns bool) ([]string, error) {
	if write {
		if err := docs.Rewrite(dir); err != nil {
			return nil, err
		}
	}
	files, err := goFiles(dir)
	if err != nil {
		return nil, err
	}
	var problems, turns []string
	for _, name := range files {
		f, err := parse(dir, name)
		if err != nil {
			return nil, err
		}
		if ast.IsGenerated(f.syntax) {
			continue
		}
		problems = append(problems, f.wide()...)
		problems = append(problems, f.skips()...)
		turns = append(turns, f.turns()...)
	}
	most := maxTurns
	if allTurns {
		most = 0
	}
	problems = append(problems, turnProblems(turns, most)...)
	more, err := docs.Problems(dir)
	return append(problems, more...), err
}

// goFiles returns the names of the Go files that git knows, below dir.
func goFiles(dir string) ([]string, error) {
	cmd := exec.Command("git", "ls-files", "-z", "--", "*.go")
	cmd.Dir = dir
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git ls-files: %w", err)
	}
	return strings.FieldsFunc(string(out), func(r rune) bool { return r == 0 }), nil
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
func (f *file) problem(line int, format string, args ...any) string {
	return fmt.Sprintf("%s:%d: %s", f.name, line, fmt.Sprintf(format, args...))
}
