// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"go/types"
	"slices"
	"strings"
)

// exported is what a package exports.
type exported struct {
	name string // import path below the module's
	all  []identifier
}

// identifier is an exported identifier of a package, a field, or a method.
type identifier struct {
	line   string
	object types.Object // nil for one that belongs to another type, too
	of     types.Object // the type of a field or method
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
		line := ""
		switch o := object.(type) {
		case *types.Const:
			kind := " " + typeString(p, o.Type())
			if basic, ok := o.Type().(*types.Basic); ok && basic.Info()&types.IsUntyped != 0 {
				kind = ""
			}
			line = fmt.Sprintf("const %s%s = %s", id, kind, o.Val().ExactString())
		case *types.Var:
			line = fmt.Sprintf("var %s %s", id, typeString(p, o.Type()))
		case *types.Func:
			line = fmt.Sprintf("func %s%s", id, signature(p, o))
		case *types.TypeName:
			line = fmt.Sprintf("type %s %s", id, kindOf(p, o))
		}
		e.all = append(e.all, identifier{line: line, object: object})
		if o, ok := object.(*types.TypeName); ok {
			e.addMembers(p, o)
		}
	}
	return e
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
func (e *exported) addMembers(p *types.Package, o *types.TypeName) {
	id, t := o.Name(), types.Unalias(o.Type())
	if o.IsAlias() {
		if named, ok := t.(*types.Named); !ok || !isInternal(named.Obj().Pkg()) {
			return
		}
	}
	add := func(own bool, object types.Object, format string, args ...any) {
		m := identifier{line: fmt.Sprintf(format, args...), of: o}
		if own && !o.IsAlias() {
			m.object = object
		}
		e.all = append(e.all, m)
	}
	switch under := t.Underlying().(type) {
	case *types.Struct:
		for f := range under.Fields() {
			switch {
			case !f.Exported():
			case f.Embedded():
				add(false, f, "type %s struct, embedded %s", id, typeString(p, f.Type()))
			default:
				add(true, f, "type %s struct, %s %s", id, f.Name(), typeString(p, f.Type()))
			}
		}
	case *types.Interface:
		for m := range under.Methods() {
			if m.Exported() {
				add(false, m, "type %s interface, %s%s", id, m.Name(), signature(p, m))
			}
		}
		return // it has no others
	}
	// Those of an embedded type that is not exported belong to this one.
	methods := types.NewMethodSet(types.NewPointer(t))
	for selection := range methods.Methods() {
		m := selection.Obj().(*types.Func)
		if !m.Exported() || len(selection.Index()) > 1 && throughExported(t, selection.Index()) {
			continue
		}
		receiver := id
		if _, pointer := m.Signature().Recv().Type().(*types.Pointer); pointer {
			receiver = "*" + id
		}
		add(len(selection.Index()) == 1, m, "method (%s) %s%s", receiver, m.Name(), signature(p, m))
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
