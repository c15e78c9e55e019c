// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
)

// A goal bounds the cost of a contestant's work: at most Times the cost of
// another one's and Plus, which the work cannot do without.
type goal struct {
	Of, Than string // names of contestants
	Times    float64
	Plus     float64
}

// limit writes what a cost is compared with.
func (g goal) limit(u unit) string {
	than := g.Than
	if g.Plus > 0 {
		than = fmt.Sprintf("(%s + %s)", than, u.Format(g.Plus))
	}
	return formatRatio(g.Times) + " × " + than
}

// The verdicts. unclear is a median beyond the limit with a spread that reaches
// to where the goal would be met.
const (
	met       = "met"
	missed    = "missed"
	unclear   = "unclear"
	wasNotRun = "not run"
)

// Judge compares a goal with the measured costs, and returns their ratio in
// words.
func (g goal) Judge(all []series) (measured, verdict string) {
	of, than := find(all, g.Of), find(all, g.Than)
	than.Samples = slices.Clone(than.Samples)
	for i := range than.Samples {
		than.Samples[i] += g.Plus
	}
	ratio := ratioOf(of, than)
	switch {
	case math.IsNaN(ratio.Median):
		for _, s := range []series{of, than} {
			if s.Missing != "" {
				measured = fmt.Sprintf("%s: %s", s.Name, s.Missing)
			}
		}
		return measured, wasNotRun
	case ratio.Median <= g.Times:
		verdict = met
	case ratio.Low > g.Times:
		verdict = missed
	default:
		verdict = unclear
	}
	return ratio.Spread(formatRatio), verdict
}

func find(all []series, name string) series {
	for _, s := range all {
		if s.Name == name {
			return s
		}
	}
	return series{Name: name}
}

// A contestant is one way of doing the work.
type contestant struct {
	Name string
	// Measure does the work n times and returns what one time cost, in the unit
	// of the contest. Work that is long, or costs no time, is done once.
	Measure func(n int) (float64, error)
	// Tail, if set, returns the 99th percentile of what Measure measured last,
	// or 0.
	Tail func() float64
	// Missing says why it cannot take part: then the rest does not matter.
	Missing error
}

// A series is what a contestant's work cost, round by round.
type series struct {
	Name    string
	Samples []float64
	Tails   []float64 // of the contestants that have them
	// Missing says why there are none.
	Missing string
}

// takeTurns lets the contestants take turns, each of which does the work some
// times. One that fails does not take part any more.
func takeTurns(contestants []contestant, rounds, times int) []series {
	all := make([]series, len(contestants))
	measure := func(i, times int) {
		if all[i].Missing != "" {
			return
		}
		cost, err := contestants[i].Measure(times)
		if err != nil {
			all[i].Missing = "failed: " + err.Error()
		}
		all[i].Samples = append(all[i].Samples, cost)
		if tail := contestants[i].Tail; tail != nil && tail() > 0 {
			all[i].Tails = append(all[i].Tails, tail())
		}
	}
	for i, c := range contestants {
		all[i].Name = c.Name
		if c.Missing != nil {
			all[i].Missing = c.Missing.Error()
		} else if times > 1 {
			measure(i, times) // warms it
			all[i].Samples, all[i].Tails = nil, nil
		}
	}
	for round := range rounds {
		// The first contestant may find the caches in another state: each is
		// first in turn.
		for turn := range contestants {
			measure((round+turn)%len(contestants), times)
		}
	}
	return all
}

// A summary is the median of some numbers, and the bounds within which eight of
// ten of them are.
type summary struct{ Median, Low, High float64 }

// summarize returns NaNs for no numbers.
func summarize(numbers []float64) summary {
	sorted := slices.Sorted(slices.Values(numbers))
	return summary{Median: quantile(sorted, 0.5), Low: quantile(sorted, 0.1),
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

// ratioOf compares two contestants within each round that both took part in.
func ratioOf(a, b series) summary { return ratios(a.Samples, b.Samples) }

func ratios(a, b []float64) summary {
	var all []float64
	for i := range min(len(a), len(b)) {
		all = append(all, a[i]/b[i])
	}
	return summarize(all)
}

// unit is what costs are counted in.
type unit uint8

// The units.
const (
	inNanoseconds unit = iota
	inBytes
)

// String returns the unit as Go benchmarks name it.
func (u unit) String() string { return [...]string{"ns", "bytes"}[u] }

// Format writes a cost with a unit that suits its size, in three digits.
func (u unit) Format(cost float64) string {
	units, step := []string{" ns", " µs", " ms", " s"}, 1000.0
	if u == inBytes {
		units, step = []string{" B", " KiB", " MiB"}, 1024
	}
	i := 0
	for math.Abs(cost) >= 999.5 && i < len(units)-1 {
		cost /= step
		i++
	}
	return fmt.Sprintf("%.3g", cost) + units[i]
}

// Spread writes a summary with its bounds.
func (s summary) Spread(format func(float64) string) string {
	if math.IsNaN(s.Median) {
		return "–"
	}
	return fmt.Sprintf("%s (%s … %s)", format(s.Median), format(s.Low), format(s.High))
}

func formatRatio(ratio float64) string {
	if ratio >= 0.1 && ratio < 100 {
		return fmt.Sprintf("%.2f", ratio)
	}
	return fmt.Sprintf("%.3g", ratio)
}
