// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"slices"
)

// Merge returns a snapshot in which rows with the same key are one: their
// counts, sums and histograms are added, and the least minimum and the greatest
// maximum are kept. Keys, stack and site are those of one of these rows. The
// function must not change the row.
//
// It is for stacks: those of different processes have different addresses, and
// stack.Symbolizer.Key is equal where they are of the same places.
func (s *Snapshot) Merge(key func(*Row) string) *Snapshot {
	merged := *s
	merged.Rows = nil
	known := make(map[string]int)
	for i := range s.Rows {
		k := key(&s.Rows[i])
		at, ok := known[k]
		if !ok {
			known[k] = len(merged.Rows)
			merged.Rows = append(merged.Rows, s.Rows[i].clone())
			continue
		}
		merged.Rows[at].merge(&s.Rows[i])
	}
	slices.SortFunc(merged.Rows, compareRows)
	return &merged
}

// Top returns a snapshot of the first rows, with the hits of the others in
// Other. The order is that of Rows, so sort them before by what matters.
func (s *Snapshot) Top(rows int) *Snapshot {
	top := *s
	top.Other = s.Other.clone()
	top.Rows = s.Rows[:min(max(rows, 0), len(s.Rows))]
	for i := len(top.Rows); i < len(s.Rows); i++ {
		top.Other.merge(&s.Rows[i])
	}
	return &top
}

// clone returns a row that can be added to.
func (r *Row) clone() Row {
	c := *r
	c.Buckets = slices.Clone(c.Buckets)
	if c.Exponential != nil {
		c.Exponential = c.Exponential.clone()
	}
	return c
}

// merge adds another row of the same aggregation to this one. Of two
// exponential histograms with different scales the sum has the coarser one.
func (r *Row) merge(other *Row) {
	r.Count += other.Count
	r.Partial = r.Partial || other.Partial
	if other.Sum.state == valuePresent {
		r.Sum = plus(r.Sum, other.Sum)
	}
	if other.Min.state == valuePresent {
		r.Min = extreme(r.Min, other.Min, -1)
	}
	if other.Max.state == valuePresent {
		r.Max = extreme(r.Max, other.Max, 1)
	}
	switch {
	case r.Exponential != nil && other.Exponential != nil:
		r.Exponential.add(other.Exponential)
	case other.Exponential != nil:
		r.Exponential = other.Exponential.clone()
	}
	for _, b := range other.Buckets {
		i, found := slices.BinarySearchFunc(r.Buckets, b, func(a, b Bucket) int {
			return cmp.Or(compareValues(a.Low, b.Low), compareValues(a.High, b.High))
		})
		if found {
			r.Buckets[i].Count += b.Count
		} else {
			r.Buckets = slices.Insert(r.Buckets, i, b)
		}
	}
}
