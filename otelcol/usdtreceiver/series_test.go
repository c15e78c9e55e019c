// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

// rowOf returns a row without keys.
func rowOf(count uint64) *trace.Row { return &trace.Row{Count: count} }

func TestTableIsLimited(t *testing.T) {
	const limit = 10
	table := &metric{limit: limit, known: make(map[seriesID]*series)}
	now := time.Now()
	resources := make([]*resource, 3*limit)
	for round := range 2 {
		for i := range resources {
			if round == 0 {
				resources[i] = &resource{group: uint64(i)}
			}
			table.add(rowOf(uint64(i)), resources[i], now, now)
		}
	}
	qt.Check(t, qt.Equals(table.kept.Load(), limit-1)) // and the one with the others
	qt.Check(t, qt.HasLen(table.all(), limit))
	var all uint64
	for _, s := range table.all() {
		all += s.count
	}
	qt.Check(t, qt.Equals(all, 2*uint64(len(resources)*(len(resources)-1)/2)))
	qt.Check(t, qt.Equals(table.overflow(now).count, table.overHits.Load()))
}

func TestSeriesEnd(t *testing.T) {
	table := &metric{limit: 10, known: make(map[seriesID]*series)}
	now := time.Now()
	alive, gone := &resource{group: 1}, &resource{group: 2}
	table.add(rowOf(1), alive, now, now)
	table.add(rowOf(1), gone, now, now)
	hasGone := func(r *resource) bool { return r == gone }
	qt.Check(t, qt.HasLen(table.end(now, hasGone), 0)) // its hit is not that old
	later := now.Add(time.Minute)
	table.add(rowOf(1), gone, now, later)
	qt.Check(t, qt.HasLen(table.end(later, hasGone), 0))
	ended := table.end(later.Add(1), hasGone)
	qt.Assert(t, qt.HasLen(ended, 1))
	qt.Check(t, qt.Equals(ended[0].resource, gone))
	qt.Check(t, qt.HasLen(table.all(), 1))
}

func (m *metric) all() []*series { return slices.Collect(maps.Values(m.known)) }
