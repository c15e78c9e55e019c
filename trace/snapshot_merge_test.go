// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

func TestSnapshotMerge(t *testing.T) {
	number := func(n int64) Value { return numberValue(bpfgen.ClassSigned, uint64(n)) }
	h := &bpfgen.Histogram{Low: -4, High: 4, Step: 2}
	before := &Snapshot{By: []string{"stack"}, Rows: []Row{
		{Keys: []Value{number(1)}, Count: 10, Sum: number(5), Min: number(-3), Max: number(4),
			histogram: h, buckets: tracing.Buckets{Offset: 1, Counts: []uint64{1, 0, 9}}},
		{Keys: []Value{number(2)}, Count: 9, Sum: number(1)},
		{Keys: []Value{number(3)}, Count: 3, Sum: number(-7), Min: number(-2), Max: number(8),
			histogram: h, buckets: tracing.Buckets{Offset: 2, Counts: []uint64{2, 0, 1}}},
	}}
	odd := func(r *Row) string {
		if r.Keys[0].Int()%2 == 1 {
			return "odd"
		}
		return "even"
	}
	after := before.Merge(odd)
	qt.Assert(t, qt.HasLen(after.Rows, 2))
	row := after.Rows[0]
	qt.Check(t, qt.Equals(row.Count, 13))
	qt.Check(t, qt.Equals(row.Keys[0].Int(), 1))
	qt.Check(t, qt.Equals(row.Sum.Int(), -2))
	qt.Check(t, qt.Equals(row.Min.Int(), -3))
	qt.Check(t, qt.Equals(row.Max.Int(), 8))
	var counts []uint64
	for _, b := range row.Histogram(0) {
		counts = append(counts, b.Count)
	}
	qt.Check(t, qt.DeepEquals(counts, []uint64{1, 2, 9, 1}))
	qt.Check(t, qt.Equals(after.Rows[1].Count, 9))
	qt.Check(t, qt.Equals(before.Rows[0].buckets.Counts[1], 0), qt.Commentf("it stays as it was"))
}
