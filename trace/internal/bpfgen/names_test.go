// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// A text of the start, too, has its length where the definition says.
func TestTextsOfStartsHaveTheirLength(t *testing.T) {
	text := expr.Term{Source: expr.String, Index: expr.Unbound, Name: "query", Start: true}
	site := &Site{Names: []string{"id", "query", "query_length"}, Lengths: []int{-1, 2, -1}}
	left := site.bound(text)
	qt.Assert(t, qt.DeepEquals(left.Arguments(), []int{1, 2}))
	qt.Assert(t, qt.IsTrue(left.Start))
}
