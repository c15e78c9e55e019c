// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"math"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func TestTotalsOfMoreThan64Bits(t *testing.T) {
	var sum total
	check := func(v trace.Value, want float64, isInt bool) {
		t.Helper()
		sum.add(v)
		number, ok := sum.int()
		qt.Check(t, qt.Equals(ok, isInt))
		qt.Check(t, qt.Equals(sum.float(), want))
		if ok {
			qt.Check(t, qt.Equals(float64(number), want))
		}
	}
	check(trace.Value{}, 0, true)
	check(trace.ValueOf(int64(-5)), -5, true)
	check(trace.ValueOf(uint64(math.MaxUint64)), 0x1p64, false)
	check(trace.ValueOf(uint64(5)), 0x1p64, false)
	check(trace.ValueOf(int64(math.MinInt64)), 0x1p63, true) // 2^63 - 1
	check(trace.ValueOf(int64(math.MinInt64)), -1, true)
	check(trace.ValueOf(int64(math.MinInt64)), -0x1p63, false)
}
