// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"math/big"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Sums of random numbers of all sizes and both signs are exact where they fit,
// and otherwise as exact as the buckets are.
func TestSumsOfMoreThan64Bits(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	histogram := &bpfgen.Histogram{Scale: 3}
	floats, integers := 0, 0
	for range 3000 {
		count := 1 + random.IntN(1000)
		shift, signed := random.IntN(64), random.IntN(2) == 0
		exact, sums := new(big.Int), make(map[int][2]uint64) // sum and count, by bucket
		for range count {
			bits := random.Uint64() >> shift
			number := new(big.Int).SetUint64(bits)
			if signed {
				bits = uint64(int64(random.Uint64()) >> shift)
				number.SetInt64(int64(bits))
			}
			exact.Add(exact, number)
			bucket := bucketOf(histogram, bits, signed)
			s := sums[bucket]
			sums[bucket] = [2]uint64{s[0] + bits, s[1] + 1}
		}
		var sum Value
		size := 0.0 // of the values, without their signs
		for bucket, s := range sums {
			var b bounds
			b.low, b.high, b.lowNegative, b.highNegative = histogram.Bounds(bucket)
			part := b.sumOf(s[0], s[1])
			size += math.Abs(part.Float())
			sum = plus(sum, part)
		}
		want, _ := new(big.Float).SetInt(exact).Float64()
		comment := qt.Commentf("%v is %v, shifted by %d, signed %v", exact, sum, shift, signed)
		qt.Assert(t, qt.IsTrue(math.Abs(sum.Float()-want) <= 0.0434*size), comment)
		if sum.Kind() == Float {
			floats++
		} else {
			integers++
			qt.Assert(t, qt.Equals(sum.String(), exact.String()), comment)
		}
	}
	qt.Check(t, qt.IsTrue(floats > 100 && integers > 1000),
		qt.Commentf("%d and %d", floats, integers))
}

func bucketOf(h *bpfgen.Histogram, bits uint64, signed bool) int {
	negative := signed && int64(bits) < 0
	if negative {
		bits = -bits
	}
	distance := sort.Search(h.Buckets()-1-h.Zero(), func(n int) bool {
		_, high, _, _ := h.Bounds(h.Zero() + n)
		return bits <= high
	})
	if negative {
		return h.Zero() - distance
	}
	return h.Zero() + distance
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
