// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestWithoutUsers(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.org/m\n\ngo 1.25\n",
		"b/b.go": "package b\n\ntype Text string\n",
		"a/a.go": `package a

import "example.org/m/b"

type Option struct{ Used, Unused int }
type Kind int
type Nobodys int

const One Kind = 1

func (o Option) String() string { return "" }
func (o Option) Method()        {}
func Do(Option) Kind            { return One }
func Shown(b.Text)              { internal() }
func Tested()                   {}
func internal()                 { Unneeded() }
func Unneeded()                 {}
`,
		"a/a_test.go": `package a_test

import (
	"testing"

	"example.org/m/a"
)

func ExampleShown()           { a.Shown("") }
func TestTested(t *testing.T) { a.Tested() }
`,
		"cmd/go.mod": "module example.org/m/cmd\n\ngo 1.25\n\nrequire example.org/m v0.0.0\n\n" +
			"replace example.org/m => ../\n",
		"cmd/m/main.go": `package main

import "example.org/m/a"

func main() { a.Do(a.Option{Used: 1}) }
`,
	} {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
	}
	m, err := load(dir, "linux", "cmd")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(m.withoutUsers(), []string{"a.Nobodys", "a.Option.Method", "a.Option.Unused",
		"a.Tested", "a.Unneeded"}))
	qt.Assert(t, qt.Equals(m.dependencies, "a: package b\n"))
}

// Types that users cannot import are found wherever a declaration names them,
// but for an alias, which names them for users.
func TestWithInternal(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module example.org/m\n\ngo 1.25\n",
		"internal/x/x.go": "package x\n\ntype T struct{ A int }\n\nfunc (T) B() {}\n\ntype E struct{}\n",
		"a/a.go": `package a

import "example.org/m/internal/x"

type Named = x.T
type Struct struct {
	Field    map[string]*x.E
	Good     Named
	hidden   x.E
	x.E
}
type Interface interface{ Do(func(x.E)) }

func (Struct) Method() []x.E { return nil }
func Generic[T interface{ Do(x.E) }](T) {}
func Do(Named) {}

const C = "internal/x.E"

var V x.E
`,
	} {
		path := filepath.Join(dir, name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
	}
	m, err := load(dir, "linux")
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(withInternal(m.all), []string{
		"a: func Generic[T interface{Do(internal/x.E)}](T)",
		"a: type Interface interface, Do(func(internal/x.E))",
		"a: type Struct struct, Field map[string]*internal/x.E",
		"a: type Struct struct, embedded internal/x.E",
		"a: method (Struct) Method() []internal/x.E",
		"a: var V internal/x.E",
	}))
}
