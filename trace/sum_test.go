// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"
)

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
