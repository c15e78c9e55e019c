// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"go/ast"
	"slices"
	"strings"
)

// mayCallSkip lists the directories whose files may skip a test themselves: the
// package of the policy, and benchmarks: some make no sense on some machines.
var mayCallSkip = []string{"internal/testneeds/", "bench/"}

// skips finds tests that are skipped by other means than package testneeds.
func (f *file) skips() []string {
	if slices.ContainsFunc(mayCallSkip,
		func(dir string) bool { return strings.HasPrefix(f.name, dir) }) {
		return nil
	}
	var problems []string
	ast.Inspect(f.syntax, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok {
			return true
		}
		method, ok := call.Fun.(*ast.SelectorExpr)
		if ok && isTesting(method.X) && slices.Contains([]string{"Skip", "Skipf", "SkipNow"},
			method.Sel.Name) {
			problems = append(problems, f.problem(f.set.Position(call.Pos()).Line,
				"a test is skipped by %s: let internal/testneeds decide", method.Sel.Name))
		}
		return true
	})
	return problems
}

// isTesting reports whether an expression looks like a *testing.T, *testing.B
// or testing.TB: t, b, tb, or a field of such a name.
func isTesting(x ast.Expr) bool {
	name := ""
	switch x := x.(type) {
	case *ast.Ident:
		name = x.Name
	case *ast.SelectorExpr:
		name = x.Sel.Name
	}
	return slices.Contains([]string{"t", "b", "tb"}, name)
}
