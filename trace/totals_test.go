// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/tracing"
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
			a.normalize = func(_, text string) string { return text }
		}
		a.layOut()
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
			buckets += row.Histogram(0)[0].Count
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
		a.layOut()
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
	a.layOut()
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
		session:     &Session{}, maxKeys: 100,
	}
	a.layOut()
	for _, text := range []string{"ab", "ab\x00cd", "ab\x00", "ab\x00\x00", "abcdeä", "abcdeö",
		"abcde", "abcdef", "abcdefg", "abcdefh"} {
		raw := make([]byte, a.keySize)
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

// Sums of random numbers of all sizes and both signs are exact where they fit,
// and otherwise rounded.
func TestSumsOfMoreThan64Bits(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	floats, integers := 0, 0
	for range 3000 {
		shift, signed := random.IntN(64), random.IntN(2) == 0
		exact := new(big.Int)
		var all sums
		for all.count = range uint64(1 + random.IntN(1000)) {
			bits := random.Uint64() >> shift
			number := new(big.Int).SetUint64(bits)
			upper := bits >> 32
			if signed {
				bits = uint64(int64(bits<<shift) >> shift)
				number.SetInt64(int64(bits))
				upper = uint64(int64(bits) >> 32)
			}
			exact.Add(exact, number)
			all.sum += bits
			all.upper += upper
		}
		all.count++
		sum := all.total(signed)
		want, _ := new(big.Float).SetInt(exact).Float64()
		comment := qt.Commentf("%v is %v, shifted by %d, signed %v", exact, sum, shift, signed)
		if sum.Kind() == Float {
			floats++
			qt.Assert(t, qt.IsTrue(math.Abs(sum.Float()-want) <= 0x1p-51*math.Abs(want)), comment)
			qt.Assert(t, qt.IsFalse(exact.IsUint64() || exact.IsInt64()), comment)
		} else {
			integers++
			qt.Assert(t, qt.Equals(sum.String(), exact.String()), comment)
		}
	}
	qt.Check(t, qt.IsTrue(floats > 100 && integers > 1000),
		qt.Commentf("%d and %d", floats, integers))
	// A hit can be in one of the sums only, while it happens.
	qt.Check(t, qt.Equals((&sums{count: 1, upper: 1 << 29}).total(false).Float(), 0))
	qt.Check(t, qt.Equals((&sums{count: 1, sum: 1 << 61}).total(true).Float(), 0x1p61))
}

func TestPlus(t *testing.T) {
	for _, test := range []struct{ a, b, want Value }{
		{Value{}, ValueOf(int64(-3)), ValueOf(int64(-3))},
		{ValueOf(uint64(5)), ValueOf(int64(-3)), ValueOf(int64(2))},
		{ValueOf(uint64(3)), ValueOf(int64(-5)), ValueOf(int64(-2))},
		{ValueOf(uint64(math.MaxUint64)), ValueOf(uint64(1)), floatValue(0x1p64)},
		{ValueOf(uint64(math.MaxUint64)), ValueOf(int64(-1)), ValueOf(uint64(math.MaxUint64 - 1))},
		{ValueOf(int64(math.MaxInt64)), ValueOf(int64(1)), ValueOf(uint64(1 << 63))},
		{ValueOf(int64(math.MinInt64)), ValueOf(int64(-1)), floatValue(-0x1p63)},
		{floatValue(0x1p70), ValueOf(int64(-1)), floatValue(0x1p70)},
	} {
		got := plus(test.a, test.b)
		qt.Check(t, qt.Equals(got.Kind(), test.want.Kind()), qt.Commentf("%v + %v", test.a, test.b))
		qt.Check(t, qt.Equals(got.String(), test.want.String()))
	}
}

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

// Sites of one probe may encode the same number with a sign and without.
func TestEqualNumbersAreOneKey(t *testing.T) {
	same := func(_, text string) string { return text }
	for _, normalize := range []func(_, text string) string{nil, same} {
		a := &aggregation{names: []string{"pid", "arg0"}, maxKeys: 10, normalize: normalize}
		a.Keys = []expr.Term{{Source: expr.PID}, {Source: expr.Argument}}
		a.layOut()
		for _, hit := range []struct {
			number uint64
			class  bpfgen.Class
		}{
			{7, bpfgen.ClassUnsigned}, {7, bpfgen.ClassSigned},
			{0, bpfgen.ClassSigned}, {0, bpfgen.ClassUnsigned},
			{math.MaxUint32, bpfgen.ClassUnsigned}, {math.MaxUint64, bpfgen.ClassSigned},
			{math.MaxUint64, bpfgen.ClassUnsigned}, {math.Float64bits(7), bpfgen.ClassFloat64},
		} {
			key := binary.NativeEndian.AppendUint64(binary.NativeEndian.AppendUint64(nil, 17), hit.number)
			key = binary.NativeEndian.AppendUint32(key, uint32(hit.class)<<2)
			a.totalOf(binary.NativeEndian.AppendUint32(key, 0), make(map[string]*total)).Count++
		}
		counts := make(map[string]uint64)
		for _, row := range a.snapshot().Rows {
			key := row.Keys[1]
			counts[fmt.Sprint(key.Kind(), " ", key)] += row.Count
		}
		qt.Check(t, qt.DeepEquals(counts, map[string]uint64{
			fmt.Sprint(Unsigned, " 7"): 2, fmt.Sprint(Unsigned, " 0"): 2, fmt.Sprint(Signed, " -1"): 1,
			fmt.Sprint(Unsigned, " 4294967295"): 1, fmt.Sprint(Float, " 7"): 1,
			fmt.Sprint(Unsigned, " 18446744073709551615"): 1,
		}))
		qt.Check(t, qt.HasLen(a.totals.rows, 6))
	}
}

// A table without keys is one row: nothing is to be made equal.
func TestWithoutKeysThereIsOneRow(t *testing.T) {
	qt.Check(t, qt.HasLen((&aggregation{}).oneKey(nil), 0))
}

// A text with a larger limit is not read shorter than one with a smaller limit.
func TestNormalizedTextsTakeTheRoomThereIs(t *testing.T) {
	least := 0
	for limit := 40; limit <= 200; limit++ {
		a := &aggregation{normalize: func(_, text string) string { return text },
			Aggregation: bpfgen.Aggregation{Keys: []expr.Term{
				{Source: expr.String}, {Source: expr.String, Max: limit}}}}
		a.layOut()
		qt.Check(t, qt.IsTrue(a.keySize <= maxKeySize))
		if limit >= 86 {
			qt.Check(t, qt.IsTrue(a.Keys[1].Max > least-8), qt.Commentf("%d: %d", limit, a.Keys[1].Max))
			least = max(170, a.Keys[1].Max)
		}
	}
}
