// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/types"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/go/packages"
)

// exported is what a package exports.
type exported struct {
	name  string   // import path below the module's
	lines []string // one for each identifier
	top   int      // identifiers that are no methods and no fields
}

// load returns the packages of the module in dir that others can import, as
// they are on a system, in the order of their names.
func load(dir, system string) (all []exported, err error) {
	config := &packages.Config{Dir: dir, Mode: packages.NeedName | packages.NeedModule |
		packages.NeedTypes | packages.NeedImports,
		Env: append(os.Environ(), "GOOS="+system, "GOARCH=amd64", "CGO_ENABLED=0")}
	loaded, err := packages.Load(config, "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range loaded {
		if len(p.Errors) > 0 {
			return nil, fmt.Errorf("%s: %w", p.PkgPath, p.Errors[0])
		}
		if p.Name != "main" && !isInternal(p.Types) {
			all = append(all, describe(strings.TrimPrefix(p.PkgPath, p.Module.Path+"/"), p.Types))
		}
	}
	slices.SortFunc(all, func(a, b exported) int { return strings.Compare(a.name, b.name) })
	return all, nil
}

// describe lists the identifiers of a package: what is declared at the top
// level in the order of the names, below each type its fields and its methods.
func describe(name string, p *types.Package) exported {
	e := exported{name: name}
	scope := p.Scope()
	for _, id := range scope.Names() { // sorted
		object := scope.Lookup(id)
		if !object.Exported() {
			continue
		}
		e.top++
		switch o := object.(type) {
		case *types.Const:
			e.add("const %s%s = %s", id, constType(p, o.Type()), o.Val().ExactString())
		case *types.Var:
			e.add("var %s %s", id, typeString(p, o.Type()))
		case *types.Func:
			e.add("func %s%s", id, signature(p, o.Signature()))
		case *types.TypeName:
			e.typeName(p, o)
		}
	}
	return e
}

func (e *exported) add(format string, args ...any) {
	e.lines = append(e.lines, fmt.Sprintf(format, args...))
}

func (e *exported) typeName(p *types.Package, o *types.TypeName) {
	id, t := o.Name(), types.Unalias(o.Type())
	if o.IsAlias() {
		e.add("type %s = %s", id, typeString(p, t))
		// What users cannot import they know by this name alone.
		if named, ok := t.(*types.Named); ok && isInternal(named.Obj().Pkg()) {
			e.members(p, id, t)
		}
		return
	}
	switch under := t.Underlying().(type) {
	case *types.Struct:
		e.add("type %s struct", id)
	case *types.Interface:
		e.add("type %s interface", id)
	default:
		e.add("type %s %s", id, typeString(p, under))
	}
	e.members(p, id, t)
}

// members adds the fields and the methods of a type with that name.
func (e *exported) members(p *types.Package, id string, t types.Type) {
	switch under := t.Underlying().(type) {
	case *types.Struct:
		for field := range under.Fields() {
			switch {
			case !field.Exported():
			case field.Embedded():
				e.add("type %s struct, embedded %s", id, typeString(p, field.Type()))
			default:
				e.add("type %s struct, %s %s", id, field.Name(), typeString(p, field.Type()))
			}
		}
	case *types.Interface:
		for method := range under.Methods() {
			if method.Exported() {
				e.add("type %s interface, %s%s", id, method.Name(),
					signature(p, method.Signature()))
			}
		}
		return // it has no others
	}
	// Those of an embedded type that is not exported belong to this one.
	methods := types.NewMethodSet(types.NewPointer(t))
	for selection := range methods.Methods() {
		method := selection.Obj().(*types.Func)
		if !method.Exported() || len(selection.Index()) > 1 &&
			throughExported(t, selection.Index()) {
			continue
		}
		receiver := id
		if _, pointer := method.Signature().Recv().Type().(*types.Pointer); pointer {
			receiver = "*" + id
		}
		e.add("method (%s) %s%s", receiver, method.Name(), signature(p, method.Signature()))
	}
}

// isInternal reports whether users cannot import a package.
func isInternal(p *types.Package) bool {
	return p != nil && slices.Contains(strings.Split(p.Path(), "/"), "internal")
}

// throughExported reports whether a method comes from an exported field, where
// it is listed, or found in another package's documentation.
func throughExported(t types.Type, index []int) bool {
	s, ok := t.Underlying().(*types.Struct)
	return ok && s.Field(index[0]).Exported()
}

// constType is the type of a constant, with a blank before it, or nothing where
// the constant has none.
func constType(p *types.Package, t types.Type) string {
	if basic, ok := t.(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
		return ""
	}
	return " " + typeString(p, t)
}

// typeString names a type as code in the package does.
func typeString(p *types.Package, t types.Type) string {
	return types.TypeString(withoutNames(t), func(other *types.Package) string {
		if other == p {
			return ""
		}
		return other.Name()
	})
}

// signature is the type of a function without the word func.
func signature(p *types.Package, s *types.Signature) string {
	return typeString(p, s)[len("func"):]
}

// withoutNames returns a type whose functions have parameters without names:
// they may change.
func withoutNames(t types.Type) types.Type {
	switch t := t.(type) {
	case *types.Signature:
		if t.TypeParams().Len() > 0 {
			return t
		}
		return types.NewSignatureType(nil, nil, nil, tupleWithoutNames(t.Params()),
			tupleWithoutNames(t.Results()), t.Variadic())
	case *types.Pointer:
		return types.NewPointer(withoutNames(t.Elem()))
	case *types.Slice:
		return types.NewSlice(withoutNames(t.Elem()))
	case *types.Map:
		return types.NewMap(withoutNames(t.Key()), withoutNames(t.Elem()))
	}
	return t
}

func tupleWithoutNames(t *types.Tuple) *types.Tuple {
	var vars []*types.Var
	for v := range t.Variables() {
		vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), "", withoutNames(v.Type())))
	}
	return types.NewTuple(vars...)
}
