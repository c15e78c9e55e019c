// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/scanner"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// declarations are those of a file.
type declarations struct {
	file     string // its name, without the folder
	pkg      string
	provider string
	probes   []probe
}

// probe is a function without a body.
type probe struct {
	function, name string
	args           []argument
	size           int // of the arguments on the stack
}

// argument is one that tracers see. A string is two of them.
type argument struct {
	name   string
	typ    string // in C, for the definition
	size   int
	signed bool
	float  bool
	offset int // in the arguments on the stack
}

// maxArguments is the number that tracers read. The last is the goroutine.
const maxArguments = 12

// goroutine is the name of the last argument.
const goroutine = "goroutine"

// scalars are the types of one argument.
var scalars = map[string]argument{
	"bool": {typ: "bool", size: 1}, "byte": {typ: "uint8_t", size: 1},
	"int8": {typ: "int8_t", size: 1, signed: true}, "uint8": {typ: "uint8_t", size: 1},
	"int16": {typ: "int16_t", size: 2, signed: true}, "uint16": {typ: "uint16_t", size: 2},
	"int32": {typ: "int32_t", size: 4, signed: true}, "uint32": {typ: "uint32_t", size: 4},
	"rune": {typ: "int32_t", size: 4, signed: true},
	"int":  {typ: "int64_t", size: 8, signed: true}, "uint": {typ: "uint64_t", size: 8},
	"int64": {typ: "int64_t", size: 8, signed: true}, "uint64": {typ: "uint64_t", size: 8},
	"uintptr": {typ: "uintptr_t", size: 8}, "unsafe.Pointer": {typ: "const void *", size: 8},
	"float32": {typ: "float", size: 4, float: true},
	"float64": {typ: "double", size: 8, float: true},
	// The one type of another package that services measure most of all.
	"time.Duration": {typ: "int64_t", size: 8, signed: true},
}

// declarer reads the declarations of a file.
type declarer struct {
	declarations
	dir   string
	set   *token.FileSet
	types map[string]ast.Expr // of the package; nil until one is looked for
	errs  scanner.ErrorList
}

func (d *declarer) refuse(at ast.Node, format string, args ...any) {
	d.errs.Add(d.set.Position(at.Pos()), fmt.Sprintf(format, args...))
}

// declare reads the declarations of a file. Its error has a line for each that
// is bad.
func declare(name string) (*declarations, error) {
	d := declarer{dir: filepath.Dir(name), set: token.NewFileSet()}
	d.file = filepath.Base(name)
	file, err := parser.ParseFile(d.set, name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	d.pkg = file.Name.Name
	if d.provider = d.pkg; d.pkg == "main" {
		d.provider = ""
	}
	for _, group := range file.Comments {
		if name, ok := directive(group, "provider"); ok {
			if d.provider = name; !isName.MatchString(name) {
				d.refuse(group, "%q is no name of a provider: letters, digits and _", name)
			}
		}
	}
	if d.provider == "" {
		d.refuse(file.Name, "the provider has no name: write //sdt:provider NAME into the file")
	}
	for _, spec := range file.Imports {
		if spec.Path.Value == `"C"` {
			d.refuse(spec, "a package that uses cgo cannot have assembly: "+
				"declare the probes in a package of their own")
		}
	}
	for _, decl := range file.Decls {
		if f, ok := decl.(*ast.FuncDecl); ok && f.Body == nil {
			d.probe(f)
		}
	}
	if len(d.probes)+len(d.errs) == 0 {
		return nil, fmt.Errorf("%s: no function without a body declares a probe", name)
	}
	d.errs.Sort()
	var errs []error
	for _, e := range d.errs {
		errs = append(errs, e)
	}
	return &d.declarations, errors.Join(errs...)
}

var (
	isName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
	// typeWords would be part of a type in the definition.
	typeWords = regexp.MustCompile(`^(char|short|int|long|signed|unsigned|float|double|void|const|bool|_Bool)$`)
)

// directive returns the argument of a comment //sdt:NAME.
func directive(group *ast.CommentGroup, name string) (string, bool) {
	for _, c := range comments(group) {
		if rest, ok := strings.CutPrefix(c.Text, "//sdt:"+name); ok {
			return strings.TrimSpace(rest), true
		}
	}
	return "", false
}

func (d *declarer) probe(f *ast.FuncDecl) {
	p := probe{function: f.Name.Name}
	name, ok := directive(f.Doc, "probe")
	if !ok {
		name = probeName(p.function)
	}
	p.name = name
	switch {
	case !isName.MatchString(name):
		d.refuse(f, "%s: %q is no name of a probe: letters, digits and _", p.function, name)
	case f.Recv != nil:
		d.refuse(f, "%s: a probe is a function, not a method", p.function)
	case f.Type.TypeParams != nil:
		d.refuse(f, "%s: a probe has no type parameters", p.function)
	case f.Type.Results != nil:
		d.refuse(f, "%s: a probe returns nothing", p.function)
	case slices.ContainsFunc(d.probes, func(q probe) bool { return q.name == name }):
		d.refuse(f, "%s: another function is the probe %s:%s", p.function, d.provider, name)
	}
	pointers := ""
	for _, field := range f.Type.Params.List {
		if len(field.Names) == 0 {
			d.refuse(field, "%s: an argument has no name", p.function)
		}
		for _, name := range field.Names {
			if d.argument(&p, field, name.Name) && pointers == "" {
				pointers = name.Name
			}
		}
	}
	if len(p.args) >= maxArguments {
		d.refuse(f, "%s: %d arguments and the goroutine are more than the %d that tracers read "+
			"(strings and slices are two each)", p.function, len(p.args), maxArguments)
	}
	if pointers != "" && !slices.ContainsFunc(comments(f.Doc), func(c *ast.Comment) bool {
		return c.Text == "//go:noescape"
	}) {
		d.refuse(f, "%s: write //go:noescape above it, or what %s points to is allocated on the heap",
			p.function, pointers)
	}
	d.probes = append(d.probes, p)
}

func comments(group *ast.CommentGroup) []*ast.Comment {
	if group == nil {
		return nil
	}
	return group.List
}

// argument adds an argument of the function to those of the probe. It reports
// whether the argument is a pointer or has one.
func (d *declarer) argument(p *probe, field *ast.Field, name string) bool {
	add := func(a argument, as string) {
		a.name = as
		p.size = (p.size + a.size - 1) &^ (a.size - 1)
		a.offset = p.size
		p.size += a.size
		if slices.ContainsFunc(p.args, func(b argument) bool { return b.name == as }) {
			d.refuse(field, "%s: two arguments are called %s", p.function, as)
		}
		p.args = append(p.args, a)
	}
	switch {
	case !isName.MatchString(name) || typeWords.MatchString(name) || name == "_":
		d.refuse(field, "%s: the definition cannot have an argument called %s: rename it", p.function, name)
	case name == goroutine:
		d.refuse(field, "%s: the argument goroutine is added to each probe: rename this one", p.function)
	}
	of := d.underlying(field.Type, 0)
	pointer := argument{typ: "const void *", size: 8}
	text, length := argument{typ: "const char *", size: 8}, argument{typ: "uint64_t", size: 8}
	switch t := of.(type) {
	case *ast.StarExpr:
		add(pointer, name)
		return true
	case *ast.ArrayType:
		if element, ok := d.underlying(t.Elt, 0).(*ast.Ident); ok && t.Len == nil &&
			(element.Name == "byte" || element.Name == "uint8") {
			add(text, name)
			add(length, name+"_length")
			p.size += 8 // the capacity
			return true
		}
	case *ast.Ident:
		if t.Name == "string" {
			add(text, name)
			add(length, name+"_length")
			return true
		}
		if a, ok := scalars[t.Name]; ok {
			add(a, name)
			return a.typ == pointer.typ
		}
	}
	d.refuse(field, "%s: %s has a type that tracers cannot read: use an integer, a float, a bool, "+
		"a pointer, a string or a []byte", p.function, name)
	return false
}

// underlying follows names of types that the package declares. A type of
// another package that is known is an identifier with a dot.
func (d *declarer) underlying(of ast.Expr, depth int) ast.Expr {
	switch t := of.(type) {
	case *ast.ParenExpr:
		return d.underlying(t.X, depth)
	case *ast.SelectorExpr:
		if pkg, ok := t.X.(*ast.Ident); ok {
			return ast.NewIdent(pkg.Name + "." + t.Sel.Name)
		}
	case *ast.Ident:
		if d.types == nil {
			d.readTypes()
		}
		const maxDepth = 100 // a type of itself is Go's compiler's to refuse
		if declared, ok := d.types[t.Name]; ok && depth < maxDepth {
			return d.underlying(declared, depth+1)
		}
	}
	return of
}

// readTypes reads the types that the package declares. What is wrong in other
// files is for the compiler.
func (d *declarer) readTypes() {
	d.types = make(map[string]ast.Expr)
	entries, _ := os.ReadDir(d.dir)
	for _, entry := range entries {
		if !strings.HasSuffix(entry.Name(), ".go") || strings.HasSuffix(entry.Name(), "_test.go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(d.dir, entry.Name()), nil,
			parser.SkipObjectResolution)
		if err != nil || file.Name.Name != d.pkg {
			continue
		}
		for _, decl := range file.Decls {
			if general, ok := decl.(*ast.GenDecl); ok {
				for _, spec := range general.Specs {
					if t, ok := spec.(*ast.TypeSpec); ok && t.TypeParams == nil {
						d.types[t.Name.Name] = t.Type
					}
				}
			}
		}
	}
}

// probeName is request__start for requestStart and HTTPRequest is
// http__request.
func probeName(function string) string {
	var b strings.Builder
	runes := []rune(function)
	upper := func(i int) bool { return i < len(runes) && runes[i] >= 'A' && runes[i] <= 'Z' }
	for i, r := range runes {
		// A word begins after a small letter, and before one.
		if i > 0 && upper(i) && (!upper(i-1) || i+1 < len(runes) && !upper(i+1)) {
			b.WriteString("__")
		}
		b.WriteString(strings.ToLower(string(r)))
	}
	return b.String()
}
