// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"math"
	"strconv"
	"time"
)

// formatDuration returns a time in nanoseconds with three digits and the unit
// that suits it: "512ns", "1.02us".
func formatDuration(ns float64) string {
	units := []struct {
		name string
		size float64
	}{{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}
	n := 0
	for n+1 < len(units) && math.Abs(ns) >= units[n+1].size {
		n++
	}
	return formatNumber(ns/units[n].size, 3) + units[n].name
}

// formatAverage returns a number with four digits, or all that stand before the
// point.
func formatAverage(x float64) string { return formatNumber(x, 4) }

// leastRated is the shortest time that a rate is shown of: a command that ends
// after some microseconds has not passed its probes a million times a second.
const leastRated = 10 * time.Millisecond

// formatRate returns how many hits there were in a second, or "-".
func formatRate(count uint64, took time.Duration) string {
	if took < leastRated {
		return "-"
	}
	return formatAverage(float64(count)/took.Seconds()) + "/s"
}

// formatNumber returns a number with so many digits, or all that stand before
// the point.
func formatNumber(x float64, digits int) string {
	if x == math.Trunc(x) {
		return strconv.FormatFloat(x, 'f', 0, 64)
	}
	before := 1 // digits before the point, once it is rounded
	for limit := 10 - 5*math.Pow10(-digits+1); math.Abs(x) >= limit &&
		before < digits; limit *= 10 {
		before++
	}
	return strconv.FormatFloat(x, 'f', digits-before, 64)
}
