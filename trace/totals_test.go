// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"maps"
	"math"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// Of keys without end, those that are frequent have a row, also if they come
// late, and all hits are there.
func TestFrequentKeysKeepTheirRows(t *testing.T) {
	for _, normalized := range []bool{false, true} {
		a := &aggregation{
			Aggregation: bpfgen.Aggregation{Keys: []expr.Term{{Source: expr.PID}}, Sum: true,
				Histogram: &bpfgen.Histogram{}},
			session: &Session{}, maxKeys: 10,
		}
		if normalized {
			a.normalize = func(text string) string { return text }
		}
		hit := func(known map[string]*total, key, count uint64) {
			raw := binary.NativeEndian.AppendUint64(nil, key)
			raw = append(raw, 0, 0, 0, 0)
			raw = binary.NativeEndian.AppendUint32(raw, uint32(a.Histogram.Zero()+1)) // the value 1
			to := a.totalOf(raw, known)
			a.totals.give(to, 0)
			a.addTo(to, index(raw), sums{count: count, sum: count})
		}
		const early, late = 1, 2
		next := uint64(100)
		for round := range 500 {
			known := make(map[string]*total)
			hit(known, early, 3)
			for range 20 {
				hit(known, next, 1)
				next++
			}
			if round >= 300 {
				hit(known, late, 4)
			}
			qt.Assert(t, qt.IsTrue(len(a.totals.rows) <= 10+a.room()+a.reserve()))
		}
		a.dropRows()
		qt.Assert(t, qt.HasLen(a.totals.rows, 10))
		rows := make(map[uint64]Row)
		all := a.totals.other.Count
		buckets := a.totals.other.buckets.Counts[0]
		for _, to := range a.totals.rows {
			row := to.Row
			rows[row.Keys[0].Uint()] = row
			all += row.Count
			buckets += row.Exponential().Positive.Counts[0]
			qt.Check(t, qt.Equals(row.Sum.Uint(), row.Count))
		}
		const want = 500*23 + 200*4
		qt.Check(t, qt.Equals(all, want))
		qt.Check(t, qt.Equals(buckets, want))
		qt.Check(t, qt.Equals(rows[early].Count, 1500))
		qt.Check(t, qt.IsFalse(rows[early].Partial))
		qt.Check(t, qt.Equals(rows[late].Count, 800))
		qt.Check(t, qt.IsTrue(rows[late].Partial))
	}
}

// Tables with the same keys have rows of the same keys, also where there are
// too many that are equally frequent.
func TestRowsThatAreKeptAreThoseOfOtherTables(t *testing.T) {
	var first []string
	for range 20 {
		a := &aggregation{
			Aggregation: bpfgen.Aggregation{Keys: []expr.Term{{Source: expr.PID}}},
			session:     &Session{},
			maxKeys:     10,
		}
		for key := range uint64(50) {
			raw := binary.NativeEndian.AppendUint64(nil, key)
			raw = append(raw, 0, 0, 0, 0, 0, 0, 0, 0)
			to := a.totalOf(raw, nil)
			a.totals.give(to, 0)
			a.addTo(to, index(raw), sums{count: 1 + key/45})
		}
		a.dropRows()
		kept := slices.Sorted(maps.Keys(a.totals.rows))
		if first == nil {
			first = kept
		}
		qt.Assert(t, qt.HasLen(kept, 10))
		qt.Assert(t, qt.DeepEquals(kept, first))
	}
}

// Owners with few rows keep all of theirs, and the others share the rest.
func TestRowsAreSharedOut(t *testing.T) {
	for _, test := range []struct {
		counts     []int
		most       int
		each, over int
	}{
		{[]int{5}, 5, math.MaxInt, 0},
		{[]int{9}, 5, 5, 0},
		{[]int{1, 100}, 10, 9, 0},
		{[]int{100, 2, 100, 3}, 10, 2, 2},
		{[]int{100, 1, 100, 3}, 10, 3, 0},
		{[]int{1, 1, 1}, 2, 0, 2},
	} {
		var all totals
		for owner, count := range test.counts {
			for range count {
				all.give(&total{}, uint64(owner))
			}
		}
		each, over := all.share(test.most)
		qt.Check(t, qt.DeepEquals([]int{each, over}, []int{test.each, test.over}),
			qt.Commentf("%v", test.counts))
	}
}

// An owner with many rows loses some of them, and one with few rows none,
// however few hits these have, and also if the first owner has passed the same
// keys before.
func TestRowsOfOwnersWithFewAreKept(t *testing.T) {
	a := &aggregation{
		Aggregation: bpfgen.Aggregation{Keys: []expr.Term{{Source: expr.PID}}},
		session:     &Session{},
		maxKeys:     10,
	}
	hit := func(key, owner, count uint64) {
		raw := binary.NativeEndian.AppendUint64(nil, key)
		raw = append(raw, 0, 0, 0, 0, 0, 0, 0, 0)
		to := a.totalOf(raw, nil)
		a.totals.give(to, owner)
		a.addTo(to, index(raw), sums{count: count})
	}
	const flood, modest = 1, 2
	for key := range uint64(20_000) {
		hit(key, flood, 5+key)
		if key == 1000 {
			for key := range uint64(4) {
				hit(key, modest, 1)
			}
		}
	}
	a.dropRows()
	qt.Assert(t, qt.HasLen(a.totals.rows, 10))
	qt.Check(t, qt.DeepEquals(a.totals.owned, map[uint64]int{flood: 6, modest: 4}))
	all := a.totals.other.Count
	for _, to := range a.totals.rows {
		row := to.Row
		key := row.Keys[0].Uint()
		qt.Check(t, qt.IsTrue(key < 4 || key >= 20_000-6), qt.Commentf("%d", key))
		qt.Check(t, qt.IsFalse(key < 4 && row.Count != 5+key+1))
		all += row.Count
	}
	qt.Check(t, qt.Equals(all, 20_000*5+20_000*19_999/2+4))
}

// A text may contain zeros, which its length tells from none, and is not cut
// within a character: then equal rows would be shown as two.
func TestTextsAsKeys(t *testing.T) {
	const limit = 6
	a := &aggregation{
		Aggregation: bpfgen.Aggregation{Keys: []expr.Term{{Source: expr.String, Max: limit}}},
		session:     &Session{}, maxKeys: 100, texts: []bpfgen.KeyPart{{Size: limit}},
	}
	_, size := a.KeyLayout()
	for _, text := range []string{"ab", "ab\x00cd", "ab\x00", "ab\x00\x00", "abcdeä", "abcdeö",
		"abcde", "abcdef", "abcdefg", "abcdefh"} {
		raw := make([]byte, size)
		copy(raw[:limit], text)
		if raw[limit] = byte(len(text)); len(text) > limit {
			raw[limit], raw[limit+1] = limit, 1<<7
		}
		to := a.totalOf(raw, nil)
		a.addTo(to, index(raw), sums{count: 1})
	}
	got := make(map[string]uint64)
	for _, to := range a.totals.rows {
		got[to.Keys[0].String()] += to.Count
	}
	qt.Check(t, qt.DeepEquals(got, map[string]uint64{"ab": 1, `ab\x00cd`: 1, `ab\x00`: 1,
		`ab\x00\x00`: 1, "abcde...": 2, "abcde": 1, "abcdef": 1, "abcdef...": 2}))
	qt.Check(t, qt.HasLen(a.totals.rows, len(got)))
}
