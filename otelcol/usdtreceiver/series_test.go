// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
)

// rowOf returns a row without keys, apart from the one of the control group.
func rowOf(count uint64) *trace.Row {
	return &trace.Row{Keys: make([]trace.Value, 1), Count: count}
}

func TestTableIsLimited(t *testing.T) {
	const limit = 10
	table := newTable(limit)
	now := time.Now()
	resources := make([]*resource, 3*limit)
	for round := range 2 {
		for i := range resources {
			if round == 0 {
				resources[i] = &resource{group: uint64(i)}
			}
			table.add(rowOf(uint64(i)), 1, resources[i], now, now)
		}
	}
	kept, over := table.counts()
	qt.Check(t, qt.Equals(kept, limit-1)) // and the one with the others
	qt.Check(t, qt.HasLen(table.all(), limit))
	var all uint64
	for _, s := range table.all() {
		all += s.count
	}
	qt.Check(t, qt.Equals(all, 2*uint64(len(resources)*(len(resources)-1)/2)))
	qt.Check(t, qt.Equals(table.overflow.count, over))
}

func TestSeriesEnd(t *testing.T) {
	table := newTable(10)
	now := time.Now()
	alive, gone := &resource{group: 1}, &resource{group: 2}
	table.add(rowOf(1), 1, alive, now, now)
	table.add(rowOf(1), 1, gone, now, now)
	hasGone := func(r *resource) bool { return r == gone }
	qt.Check(t, qt.HasLen(table.end(now, hasGone), 0)) // its hit is not that old
	later := now.Add(time.Minute)
	table.add(rowOf(1), 1, gone, now, later)
	qt.Check(t, qt.HasLen(table.end(later, hasGone), 0))
	ended := table.end(later.Add(1), hasGone)
	qt.Assert(t, qt.HasLen(ended, 1))
	qt.Check(t, qt.Equals(ended[0].resource, gone))
	qt.Check(t, qt.HasLen(table.all(), 1))
}

func TestBucketsAreAdded(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var sum buckets
	want := make(map[int]uint64)
	for range 100 {
		more := tracing.Buckets{Offset: random.IntN(50) - 25}
		for range random.IntN(5) {
			more.Counts = append(more.Counts, uint64(1+random.IntN(9)))
		}
		for i, n := range more.Counts {
			want[more.Offset+i] += n
		}
		sum.add(more)
	}
	got := make(map[int]uint64)
	for i, n := range sum.counts {
		if n > 0 {
			got[sum.offset+i] = n
		}
	}
	qt.Assert(t, qt.DeepEquals(got, want))
}
