// SPDX-License-Identifier: BSD-2-Clause

package compare

import (
	"fmt"
	"math"
	"slices"
)

// A Summary is the median of some numbers, and the bounds within which eight of
// ten of them are.
type Summary struct{ Median, Low, High float64 }

// Summarize returns NaNs for no numbers.
func Summarize(numbers []float64) Summary {
	sorted := slices.Sorted(slices.Values(numbers))
	return Summary{Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1),
		High: quantile(sorted, 0.9)}
}

func quantile(sorted []float64, q float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	at := q * float64(len(sorted)-1)
	below := int(at)
	above := min(below+1, len(sorted)-1)
	return sorted[below] + (at-float64(below))*(sorted[above]-sorted[below])
}

// Ratio compares two contestants within each round that both took part in.
func Ratio(a, b Series) Summary {
	return pairwise(a, b, func(a, b float64) float64 { return a / b })
}

// Difference is Ratio for how much more one costs.
func Difference(a, b Series) Summary {
	return pairwise(a, b, func(a, b float64) float64 { return a - b })
}

func pairwise(a, b Series, compare func(a, b float64) float64) Summary {
	var all []float64
	for i := range min(len(a.Samples), len(b.Samples)) {
		all = append(all, compare(a.Samples[i], b.Samples[i]))
	}
	return Summarize(all)
}

// Unit is what costs are counted in.
type Unit uint8

// The units.
const (
	Nanoseconds Unit = iota
	Bytes
	Count
)

// String returns the unit as Go benchmarks name it.
func (u Unit) String() string { return [...]string{"ns", "bytes", "count"}[u] }

// Format writes a cost with a unit that suits its size.
func (u Unit) Format(cost float64) string {
	var units []string
	step := 1000.0
	switch u {
	case Nanoseconds:
		units = []string{" ns", " µs", " ms", " s"}
	case Bytes:
		units, step = []string{" B", " KiB", " MiB"}, 1024
	default:
		return fmt.Sprintf("%.4g", cost)
	}
	i := 0
	for math.Abs(cost) >= step && i < len(units)-1 {
		cost /= step
		i++
	}
	return digits(cost) + units[i]
}

// digits writes a number with three digits, or all that are before the point.
func digits(n float64) string {
	switch abs := math.Abs(n); {
	case abs >= 99.95 || abs == math.Trunc(abs) && abs > 9:
		return fmt.Sprintf("%.0f", n)
	case abs >= 9.995:
		return fmt.Sprintf("%.1f", n)
	default:
		return fmt.Sprintf("%.2f", n)
	}
}

// Spread writes a summary with its bounds.
func (s Summary) Spread(format func(float64) string) string {
	if math.IsNaN(s.Median) {
		return "–"
	}
	return fmt.Sprintf("%s (%s … %s)", format(s.Median), format(s.Low), format(s.High))
}

// FormatRatio writes a ratio.
func FormatRatio(ratio float64) string {
	if ratio >= 0.1 && ratio < 100 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.3g", ratio)
}
