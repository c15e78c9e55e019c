// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"go/ast"
	"go/build"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

const source = `package a

import "io"

type T struct {
	inner
	io.Reader
	Name, Other string
	hidden      int
	Handle      func(name string, many ...int) (n int, err error)
}

type inner struct{ Depth int }

func (inner) Reach()       {}
func (t *T) Close() error  { return nil }
func (t T) String() string { return "" }
func (t *T) close()        {}

type Number uint8

const (
	One Number = 1
	Big        = 1 << 20
	Text       = "x"
)

type Reader = io.Reader

type Doer interface {
	Do(what []string) <-chan int
	do()
}

var ErrX error

func New(t *T, options map[string]func(x int)) (made *T, err error) { return nil, nil }
func hide()                                                         {}
`

func TestDescribe(t *testing.T) {
	root, err := exec.Command("go", "env", "GOROOT").Output()
	qt.Assert(t, qt.IsNil(err))
	// A test that was built with -trimpath does not know it.
	build.Default.GOROOT = strings.TrimSpace(string(root))
	set := token.NewFileSet()
	f, err := parser.ParseFile(set, "a.go", source, 0)
	qt.Assert(t, qt.IsNil(err))
	config := types.Config{Importer: importer.ForCompiler(set, "source", nil)}
	p, err := config.Check("example.com/a", set, []*ast.File{f}, nil)
	qt.Assert(t, qt.IsNil(err))
	var lines []string
	for _, i := range describe("a", p) {
		lines = append(lines, strings.TrimPrefix(i.line, "a: "))
	}
	qt.Check(t, qt.DeepEquals(lines, []string{
		"const Big = 1048576",
		"type Doer interface",
		"type Doer interface, Do([]string) <-chan int",
		"var ErrX error",
		"func New(*T, map[string]func(int)) (*T, error)",
		"type Number uint8",
		"const One Number = 1",
		"type Reader = io.Reader",
		"type T struct",
		"type T struct, embedded io.Reader",
		"type T struct, Name string",
		"type T struct, Other string",
		"type T struct, Handle func(string, ...int) (int, error)",
		"method (*T) Close() error",
		"method (T) Reach()",
		"method (T) String() string",
		`const Text = "x"`,
	}))
}

func TestDifferences(t *testing.T) {
	old := "a: func F()\na: func G()\n"
	qt.Check(t, qt.HasLen(differences(old, old), 0))
	qt.Check(t, qt.DeepEquals(differences(old, "a: func G()\na: func F(int)\n"),
		[]string{"- a: func F()", "+ a: func F(int)"}))
}
