// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// identifier is an exported identifier of a package, a field, or a method.
type identifier struct {
	line   string       // with the import path below the module's
	object types.Object // nil for one that belongs to another type, too
	of     types.Object // the type of a field or method
}

// describe lists the identifiers of a package: what is declared at the top
// level in the order of the names, below each type its fields and its methods.
func describe(name string, p *types.Package) (all []identifier) {
	add := func(object, of types.Object, format string, args ...any) {
		all = append(all, identifier{name + ": " + fmt.Sprintf(format, args...), object, of})
	}
	scope := p.Scope()
	for _, id := range scope.Names() { // sorted
		object := scope.Lookup(id)
		if !object.Exported() {
			continue
		}
		switch o := object.(type) {
		case *types.Const:
			kind := " " + typeString(p, o.Type())
			if basic, ok := o.Type().(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
				kind = ""
			}
			add(o, nil, "const %s%s = %s", id, kind, o.Val().ExactString())
		case *types.Var:
			add(o, nil, "var %s %s", id, typeString(p, o.Type()))
		case *types.Func:
			add(o, nil, "func %s%s", id, signature(p, o))
		case *types.TypeName:
			add(o, nil, "type %s %s", id, kindOf(p, o))
			addMembers(p, o, add)
		}
	}
	return all
}

// kindOf describes a type without its members.
func kindOf(p *types.Package, o *types.TypeName) string {
	if o.IsAlias() {
		return "= " + typeString(p, types.Unalias(o.Type()))
	}
	switch under := o.Type().Underlying().(type) {
	case *types.Struct:
		return "struct"
	case *types.Interface:
		return "interface"
	default:
		return typeString(p, under)
	}
}

// addMembers adds the fields and the methods of a type. Of an alias, these are
// known by its name alone if users cannot import the other type.
func addMembers(
	p *types.Package, o *types.TypeName, add func(object, of types.Object, format string, args ...any),
) {
	id, t := o.Name(), types.Unalias(o.Type())
	if o.IsAlias() {
		if named, ok := t.(*types.Named); !ok || !isInternal(named.Obj().Pkg()) {
			return
		}
	}
	own := func(object types.Object) types.Object {
		if o.IsAlias() {
			return nil
		}
		return object
	}
	fields := types.NewStruct(nil, nil)
	switch under := t.Underlying().(type) {
	case *types.Struct:
		fields = under
	case *types.Interface:
		for m := range under.Methods() {
			if m.Exported() {
				add(nil, o, "type %s interface, %s%s", id, m.Name(), signature(p, m))
			}
		}
		return // it has no others
	}
	for f := range fields.Fields() {
		switch {
		case !f.Exported():
		case f.Embedded():
			add(nil, o, "type %s struct, embedded %s", id, typeString(p, f.Type()))
		default:
			add(own(f), o, "type %s struct, %s %s", id, f.Name(), typeString(p, f.Type()))
		}
	}
	// Those of an embedded type that is not exported belong to this one. Those
	// of an exported field are listed there, or in another package's
	// documentation.
	for selection := range types.NewMethodSet(types.NewPointer(t)).Methods() {
		m, path := selection.Obj().(*types.Func), selection.Index()
		inherited := len(path) > 1
		if !m.Exported() || inherited && fields.Field(path[0]).Exported() {
			continue
		}
		receiver := id
		if _, pointer := m.Signature().Recv().Type().(*types.Pointer); pointer {
			receiver = "*" + id
		}
		object := own(m)
		if inherited {
			object = nil
		}
		add(object, o, "method (%s) %s%s", receiver, m.Name(), signature(p, m))
	}
}

// isInternal reports whether users cannot import a package.
func isInternal(p *types.Package) bool {
	return p != nil && slices.Contains(strings.Split(p.Path(), "/"), "internal")
}

// withInternal returns the lines that name a type of a package that users
// cannot import, and so can neither declare nor make. An alias names it for
// them.
func withInternal(all []identifier) (lines []string) {
	for _, i := range all {
		if named, _, _ := strings.Cut(i.line, " = "); strings.Contains(named, "internal/") {
			lines = append(lines, i.line)
		}
	}
	return lines
}

// typeString names a type as code in the package does. The name of one that
// users cannot import begins with "internal/".
func typeString(p *types.Package, t types.Type) string {
	return types.TypeString(withoutNames(t), func(other *types.Package) string {
		if other == p {
			return ""
		}
		if isInternal(other) {
			return "internal/" + other.Name()
		}
		return other.Name()
	})
}

// signature is the type of a function without the word func.
func signature(p *types.Package, f *types.Func) string {
	return typeString(p, f.Signature())[len("func"):]
}

// withoutNames returns a type whose functions have parameters without names:
// they may change.
func withoutNames(t types.Type) types.Type {
	tuple := func(all *types.Tuple) *types.Tuple {
		var vars []*types.Var
		for v := range all.Variables() {
			vars = append(vars, types.NewParam(v.Pos(), v.Pkg(), "", withoutNames(v.Type())))
		}
		return types.NewTuple(vars...)
	}
	switch t := t.(type) {
	case *types.Signature:
		if t.TypeParams().Len() > 0 {
			return t
		}
		return types.NewSignatureType(nil, nil, nil, tuple(t.Params()), tuple(t.Results()),
			t.Variadic())
	case *types.Pointer:
		return types.NewPointer(withoutNames(t.Elem()))
	case *types.Slice:
		return types.NewSlice(withoutNames(t.Elem()))
	case *types.Map:
		return types.NewMap(withoutNames(t.Key()), withoutNames(t.Elem()))
	}
	return t
}
