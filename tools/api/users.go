// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"go/types"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// withoutUsers returns the exported identifiers of the module in dir that
// nothing uses but their own package and tests. An Example function is a user.
func withoutUsers(dir string) ([]string, error) {
	u := &users{of: make(map[token.Position]bool), packages: make(map[string]*types.Package)}
	if err := u.load(dir); err != nil {
		return nil, err
	}
	return u.missing(), nil
}

// users knows where the identifiers are declared that have users. The position
// tells an identifier: a package that is loaded again for its tests has other
// objects.
type users struct {
	set      *token.FileSet
	of       map[token.Position]bool
	packages map[string]*types.Package // those that export, by import path
}

func (u *users) load(dir string) error {
	config := &packages.Config{Dir: dir, Tests: true,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedImports | packages.NeedDeps |
			packages.NeedModule | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax}
	loaded, err := packages.Load(config, "./...")
	if err != nil {
		return err
	}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		u.set = p.Fset
		path := strings.TrimSuffix(p.PkgPath, "_test")
		if p.ID == p.PkgPath && p.Name != "main" && !isInternal(p.Types) {
			u.packages[p.PkgPath] = p.Types
		}
		for _, f := range p.Syntax {
			u.file(p, f, path)
		}
	}
	return nil
}

// file notes what a file uses of other packages, and its Example functions of
// any.
func (u *users) file(p *packages.Package, f *ast.File, path string) {
	test := strings.HasSuffix(p.Fset.Position(f.Pos()).Filename, "_test.go")
	for _, declared := range f.Decls {
		function, _ := declared.(*ast.FuncDecl)
		example := test && function != nil && strings.HasPrefix(function.Name.Name, "Example")
		if test && !example {
			continue
		}
		ast.Inspect(declared, func(n ast.Node) bool {
			if id, ok := n.(*ast.Ident); ok {
				if o := p.TypesInfo.Uses[id]; o != nil && o.Pkg() != nil &&
					(example || o.Pkg().Path() != path) {
					u.of[position(p.Fset, o)] = true
				}
			}
			return true
		})
	}
}

// position is that of a declaration, whatever a package was loaded for.
func position(set *token.FileSet, o types.Object) token.Position {
	at := set.Position(o.Pos())
	at.Filename, at.Offset = filepath.Base(filepath.Dir(at.Filename))+"/"+
		filepath.Base(at.Filename), 0
	return at
}

// missing returns the names without users, sorted.
func (u *users) missing() (names []string) {
	for path, p := range u.packages {
		for _, id := range p.Scope().Names() {
			o := p.Scope().Lookup(id)
			if !o.Exported() {
				continue
			}
			name := path[strings.LastIndex(path, "/")+1:] + "." + id
			_, constant := o.(*types.Const)
			_, isType := o.(*types.TypeName)
			if !constant && !u.of[position(u.set, o)] && !(isType && u.mentioned(o)) {
				names = append(names, name)
			}
			for _, m := range members(o) {
				if !u.of[position(u.set, m)] && !u.promised(o.Type(), m) {
					names = append(names, name+"."+m.Name())
				}
			}
		}
	}
	slices.Sort(names)
	return names
}

// mentioned reports whether a type has members with users, or is that of
// another exported name: users have it without writing its name.
func (u *users) mentioned(o types.Object) bool {
	if slices.ContainsFunc(members(o),
		func(m types.Object) bool { return u.of[position(u.set, m)] }) {
		return true
	}
	id := o.Pkg().Path() + "." + o.Name()
	for _, p := range u.packages {
		for _, name := range p.Scope().Names() {
			other := p.Scope().Lookup(name)
			if !other.Exported() || other.Name() == o.Name() {
				continue
			}
			for _, m := range append(members(other), other) {
				if u.of[position(u.set, m)] && slices.Contains(words(m.Type()), id) {
					return true
				}
			}
		}
	}
	return false
}

// words returns the names in the text of a type.
func words(t types.Type) []string {
	return strings.FieldsFunc(types.TypeString(t, nil),
		func(r rune) bool { return strings.ContainsRune("()[]*{}, ;", r) })
}

// members returns the exported fields and methods of a type.
func members(o types.Object) (list []types.Object) {
	name, ok := o.(*types.TypeName)
	if !ok || name.IsAlias() {
		return nil
	}
	if s, ok := name.Type().Underlying().(*types.Struct); ok {
		for f := range s.Fields() {
			if f.Exported() && !f.Embedded() {
				list = append(list, f)
			}
		}
	}
	if named, ok := name.Type().(*types.Named); ok {
		for m := range named.Methods() {
			if m.Exported() {
				list = append(list, m)
			}
		}
	}
	return list
}

// promised reports whether a method is there for an interface: of the standard
// library, which calls it, or of one of the packages.
func (u *users) promised(of types.Type, m types.Object) bool {
	if _, ok := m.(*types.Func); !ok {
		return false
	}
	if slices.Contains([]string{"Error", "Unwrap", "Is", "String", "Format"}, m.Name()) {
		return true
	}
	for _, p := range u.packages {
		for _, id := range p.Scope().Names() {
			i, ok := p.Scope().Lookup(id).Type().Underlying().(*types.Interface)
			if !ok || !types.Implements(types.NewPointer(of), i) {
				continue
			}
			if found, _, _ := types.LookupFieldOrMethod(i, false, m.Pkg(), m.Name()); found != nil {
				return true
			}
		}
	}
	return false
}
