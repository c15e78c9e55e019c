// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// module is what others can import of a module and of those below it.
type module struct {
	path         string
	all          []identifier // by the names of the packages
	dependencies string
	set          *token.FileSet
	// used has where the identifiers are declared that have users. The position
	// tells an identifier: a package that is loaded again for its tests has
	// other objects.
	used map[string]bool
}

// load returns the module in dir, with those in folders of it, as it is on a
// system. Users and dependencies are those on Linux.
func load(dir, system string, folders ...string) (*module, error) {
	config := &packages.Config{Fset: token.NewFileSet(), Mode: packages.NeedName | packages.NeedModule |
		packages.NeedTypes | packages.NeedImports,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")}
	if system == "linux" {
		config.Tests = true
		config.Mode |= packages.NeedFiles | packages.NeedDeps | packages.NeedTypesInfo |
			packages.NeedSyntax
	}
	var loaded []*packages.Package
	for _, folder := range append([]string{"."}, folders...) {
		config.Dir = filepath.Join(dir, folder)
		more, err := packages.Load(config, "./...")
		if err != nil {
			return nil, err
		}
		loaded = append(loaded, more...)
	}
	m := &module{path: loaded[0].Module.Path, set: config.Fset, used: make(map[string]bool)}
	slices.SortFunc(loaded, func(a, b *packages.Package) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		for _, f := range p.Syntax {
			m.noteUses(p, f)
		}
		if p.ID == p.PkgPath && isPublic(p) {
			m.all = append(m.all, describe(m.name(p), p.Types)...)
			m.dependencies += m.dependenciesOf(p)
		}
	}
	return m, nil
}

func isPublic(p *packages.Package) bool { return p.Name != "main" && !isInternal(p.Types) }

// name is the path of a package below the module's.
func (m *module) name(p *packages.Package) string { return strings.TrimPrefix(p.PkgPath, m.path+"/") }

// dependenciesOf has a line for each other module, and for each other public
// package of this one, that a package needs.
func (m *module) dependenciesOf(p *packages.Package) (text string) {
	needs := make(map[string]bool)
	packages.Visit([]*packages.Package{p}, func(other *packages.Package) bool {
		switch {
		case other == p || other.Module == nil: // of the standard library
		case !strings.HasPrefix(other.PkgPath, m.path+"/"):
			needs["module "+other.Module.Path] = true
		case isPublic(other):
			needs["package "+m.name(other)] = true
		}
		return true
	}, nil)
	for _, need := range slices.Sorted(maps.Keys(needs)) {
		text += m.name(p) + ": " + need + "\n"
	}
	return text
}

// noteUses notes what a file uses of other packages, and its Example functions
// of any. A type is used where an expression has it.
func (m *module) noteUses(p *packages.Package, f *ast.File) {
	path := strings.TrimSuffix(p.PkgPath, "_test")
	test := strings.HasSuffix(p.Fset.Position(f.Pos()).Filename, "_test.go")
	for _, declared := range f.Decls {
		function, _ := declared.(*ast.FuncDecl)
		example := test && function != nil && strings.HasPrefix(function.Name.Name, "Example")
		if test && !example {
			continue
		}
		note := func(o types.Object) {
			if o != nil && o.Pkg() != nil && (example || o.Pkg().Path() != path) {
				m.used[m.position(o)] = true
			}
		}
		ast.Inspect(declared, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				note(p.TypesInfo.Uses[id])
			}
			if e, ok := n.(ast.Expr); ok {
				of := p.TypesInfo.TypeOf(e)
				if pointer, ok := of.(*types.Pointer); ok {
					of = pointer.Elem()
				}
				if named, ok := of.(*types.Named); ok {
					note(named.Obj())
				}
			}
			return true
		})
	}
}

// position is that of a declaration, without its offset, which is not known of
// packages that were not read from source.
func (m *module) position(o types.Object) string { return m.set.Position(o.Pos()).String() }

// forInterfaces are the methods that the standard library calls.
var forInterfaces = []string{"Error", "Unwrap", "Is", "String", "Format"}

// withoutUsers returns the exported identifiers but constants that nothing uses
// but their own package and tests, sorted. An Example function is a user.
func (m *module) withoutUsers() (names []string) {
	for _, i := range m.all {
		if _, isConst := i.object.(*types.Const); i.object == nil || isConst ||
			m.used[m.position(i.object)] {
			continue
		}
		name := i.object.Name()
		if i.of != nil {
			if slices.Contains(forInterfaces, name) {
				continue
			}
			name = i.of.Name() + "." + name
		}
		names = append(names, i.object.Pkg().Name()+"."+name)
	}
	slices.Sort(names)
	return names
}
