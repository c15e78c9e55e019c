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
	node := &expr.Node{Op: expr.Equal, Left: text, Right: expr.Term{Source: expr.Text, Text: "x"}}
	latency := &Latency{Conditions: StartConditions(nil, node)}
	plan := &Plan{Latencies: []*Latency{latency}}
	site := &Site{Names: []string{"id", "query", "query_length"}, Lengths: []int{-1, 2, -1}}
	bound, _ := plan.bind(site)
	left := bound.Latencies[0].Conditions[0].Node.Left
	qt.Assert(t, qt.DeepEquals(left.Arguments(), []int{1, 2}))
	qt.Assert(t, qt.IsTrue(left.Start))
}
