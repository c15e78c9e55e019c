// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"slices"
)

// Merge returns a snapshot in which rows with the same key are one: their
// counts, sums and buckets are added, and the least minimum and the greatest
// maximum are kept. Keys, stack and site are those of one of these rows. The
// function must not change the row.
//
// It is for stacks: those of different processes have different addresses, and
// stack.Symbolizer.Key is equal where they are of the same places.
func (s *Snapshot) Merge(key func(*Row) string) *Snapshot {
	merged := &Snapshot{Time: s.Time, By: s.By}
	known := make(map[string]int)
	for i := range s.Rows {
		k := key(&s.Rows[i])
		at, ok := known[k]
		if !ok {
			known[k] = len(merged.Rows)
			row := s.Rows[i]
			row.Buckets = slices.Clone(row.Buckets)
			merged.Rows = append(merged.Rows, row)
			continue
		}
		merged.Rows[at].merge(&s.Rows[i])
	}
	slices.SortFunc(merged.Rows, compareRows)
	return merged
}

// merge adds another row to this one.
func (r *Row) merge(other *Row) {
	r.Count += other.Count
	if other.Sum.state == Present {
		r.Sum = plus(r.Sum, other.Sum)
	}
	if other.Min.state == Present {
		r.Min = extreme(r.Min, other.Min, -1)
	}
	if other.Max.state == Present {
		r.Max = extreme(r.Max, other.Max, 1)
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
