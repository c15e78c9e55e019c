// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
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
			Aggregation: bpfgen.Aggregation{Keys: []expr.Term{{Source: expr.PID}}, Sum: true, Histogram: &bpfgen.Histogram{}},
			session:     &Session{}, maxKeys: 10,
		}
		if normalized {
			a.normalize = func(text string) string { return text }
		}
		hit := func(known map[string]*total, key, count uint64) {
			raw := binary.NativeEndian.AppendUint64(nil, key)
			raw = append(raw, 0, 0, 0, 0)
			raw = binary.NativeEndian.AppendUint32(raw, uint32(a.Histogram.Zero()+1)) // the value 1
			to, err := a.totalOf(raw, known)
			qt.Assert(t, qt.IsNil(err))
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
			if round >= 250 {
				hit(known, late, 4)
			}
			qt.Assert(t, qt.IsTrue(len(a.totals.rows) <= 10+minRoom))
		}
		a.dropRows()
		qt.Assert(t, qt.HasLen(a.totals.rows, 10))
		rows := make(map[uint64]Row)
		all := a.totals.other.row.Count
		buckets := a.totals.other.counts[0]
		for _, to := range a.totals.rows {
			row, err := a.finished(to)
			qt.Assert(t, qt.IsNil(err))
			rows[row.Keys[0].Uint()] = row
			all += row.Count
			buckets += row.Exponential.Positive.Counts[0]
			qt.Check(t, qt.Equals(row.Sum.Uint(), row.Count))
		}
		const want = 500*23 + 250*4
		qt.Check(t, qt.Equals(all, want))
		qt.Check(t, qt.Equals(buckets, want))
		qt.Check(t, qt.Equals(rows[early].Count, 1500))
		qt.Check(t, qt.IsFalse(rows[early].Partial))
		qt.Check(t, qt.Equals(rows[late].Count, 1000))
		qt.Check(t, qt.IsTrue(rows[late].Partial))
	}
}
