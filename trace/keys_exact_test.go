// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

// No hit is counted by the key of another one, although threads are preempted
// in the middle of a hit and keys are taken at that moment.
func TestHitsAreCountedByTheirOwnKeys(t *testing.T) {
	process := start(t, "target-pie")
	keys := trace.NewAggregator(trace.Aggregation{By: []string{"tid", "arg0", "comm", "pid", "uid"},
		MaxKeys: 8192})
	open(t, process, "gousdt_test:specs", aggregating(keys))
	const rounds, threads, specs = 20, 16, 300
	for range rounds {
		process.Thread("specs", threads)
		s := take(t, keys)
		for i := range s.Rows {
			if row := &s.Rows[i]; row.Count != 1 {
				t.Errorf("%v: %d", row.Keys, row.Count)
			}
		}
		inRows, others := counted(s)
		qt.Check(t, qt.Equals(inRows+others, threads*specs))
	}
}
