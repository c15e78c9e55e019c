// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Any condition over any arguments becomes a program that finds what exact
// arithmetic finds.
func FuzzCondition(f *testing.F) {
	f.Add(`arg0 > 4096 && arg1 == "postgres"`, uint64(1))
	f.Add(`!(arg0 & 0xff == 1 || str(arg1, 4) != "abc") || arg2 < -1.5e300`, uint64(2))
	f.Add(`arg0 < arg1 && (arg1 < arg2 || !(arg2 >= arg0)) && comm == "worker"`, uint64(3))
	f.Add(`arg3 == 1 || arg3 != 1 || arg2 || cookie || probe == "n"`, uint64(4))
	f.Fuzz(func(t *testing.T, source string, seed uint64) {
		node, err := expr.ParseCondition(source, nil, nil)
		if err != nil {
			return
		}
		for i := range testKernels {
			k := &testKernels[i]
			random := rand.New(rand.NewPCG(seed, uint64(i)))
			w := k.newWorld(random, 1+random.IntN(6))
			w.pointIntoMemory(k, random)
			counters := w.addMap(testCounters, true, 4, 8, int(CounterCount))
			plan := &Plan{Kernel: k.forPlan(), Filter: node, Counters: testCounters,
				Events: &Events{Ring: testRing, RingSize: 1 << 20}}
			block, err := plan.Block(&Site{Provider: "p", Name: "n", Cookie: seed, Args: w.args})
			if err != nil {
				continue
			}
			if block != nil {
				qt.Assert(t, qt.IsNil(w.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
					block.Instructions...))))
			}
			if hasSiteTerms(node) {
				continue
			}
			is := w.evaluate(plan.Kernel, node)
			what := qt.Commentf("%s: %s of %v", k.name, source, w.args)
			qt.Assert(t, qt.Equals(len(w.records) == 1, is == isTrue), what)
			// A hit that is left out counts if that is because a value could
			// not be read, and may if one could not be read before another
			// comparison did not hold. No code is needed for sites that lack
			// the value.
			unread := w.counter(counters, CounterUnreadable)
			qt.Assert(t, qt.IsTrue(unread <= 1 && !(unread == 1 && is == isTrue)), what)
			if is == isUnknown && block != nil && len(node.Nodes) == 0 {
				qt.Assert(t, qt.Equals(unread, uint64(1)), what)
			}
		}
	})
}

// hasSiteTerms reports whether a condition asks for what the reference does not
// know.
func hasSiteTerms(node *expr.Node) bool {
	for _, n := range node.Nodes {
		if hasSiteTerms(n) {
			return true
		}
	}
	for _, t := range []expr.Term{node.Left, node.Right} {
		switch t.Source {
		case expr.Cookie, expr.Provider, expr.Probe:
			return true
		}
	}
	return false
}
