// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// A goal says what a contestant's work may cost: at most Times what Than costs,
// or at most Most.
type goal struct {
	// Text names the work where the contest's own title would not tell it.
	Text string
	// Of and Than are names of contestants.
	Of, Than    string
	Times, Most float64
}

// verdict says whether a goal was met.
type verdict string

// The verdicts. unclear is a median beyond the limit with a spread that reaches
// to where the goal would be met.
const (
	met       verdict = "met"
	missed    verdict = "missed"
	unclear   verdict = "unclear"
	wasNotRun verdict = "not run"
)

// An outcome is a goal with what came out, in words.
type outcome struct {
	goal
	Verdict         verdict
	Limit, Measured string
}

// Judge compares a goal with what was measured.
func (g goal) Judge(all []series, unit unit) outcome {
	of, than := find(all, g.Of), find(all, g.Than)
	measured, format, limit := ratioOf(of, than), formatRatio, g.Times
	o := outcome{goal: g,
		Limit: fmt.Sprintf("at most %s × %s", formatRatio(g.Times), g.Than)}
	if g.Than == "" {
		measured, format, limit = summarize(of.Samples), unit.Format, g.Most
		o.Limit = "at most " + unit.Format(g.Most)
	}
	o.Measured = measured.Spread(format)
	switch {
	case math.IsNaN(measured.Median):
		o.Verdict = wasNotRun
		for _, s := range []series{of, than} {
			if s.Missing != "" {
				o.Measured = fmt.Sprintf("%s: %s", s.Name, s.Missing)
			}
		}
	case measured.Median <= limit:
		o.Verdict = met
	case measured.Low > limit:
		o.Verdict = missed
	default:
		o.Verdict = unclear
	}
	return o
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
	// of the contest.
	Measure func(n int) (float64, error)
	// Once says that the work is not to be repeated within a round: that it is
	// long, or that its cost is no time.
	Once bool
	// MaxRounds, if not 0, bounds the rounds that the contestant takes part in:
	// its work is very long.
	MaxRounds int
	// Missing says why it cannot take part: then the rest does not matter.
	Missing error
}

// A series is what a contestant's work cost, round by round.
type series struct {
	Name    string
	Samples []float64
	// Missing says why there are none.
	Missing string
}

// effort says how long to measure.
type effort struct {
	Rounds int
	// Sample is how long a contestant works in a round, about: short work is
	// repeated.
	Sample time.Duration
}

// maxRepeats bounds how often work is done in a round, whatever the clock says.
const maxRepeats = 1 << 20

// takeTurns lets the contestants take turns. One that fails does not take part
// any more.
func takeTurns(contestants []contestant, effort effort) []series {
	all := make([]series, len(contestants))
	repeats := make([]int, len(contestants))
	measure := func(i, n int) (cost float64, ok bool) {
		cost, err := contestants[i].Measure(n)
		if err != nil {
			all[i].Missing = "failed: " + err.Error()
		}
		return cost, err == nil
	}
	for i, c := range contestants {
		all[i].Name = c.Name
		if c.Missing != nil {
			all[i].Missing = c.Missing.Error()
		}
		repeats[i] = 1
		if c.Missing != nil || c.Once || effort.Sample == 0 {
			continue
		}
		repeats[i] = calibrate(effort.Sample, func(n int) (float64, bool) { return measure(i, n) })
	}
	for round := range effort.Rounds {
		// Who comes first may find the caches in another state: everybody does
		// in turn.
		for turn := range contestants {
			i := (round + turn) % len(contestants)
			if all[i].Missing != "" || contestants[i].MaxRounds > 0 &&
				round >= contestants[i].MaxRounds {
				continue
			}
			if cost, ok := measure(i, repeats[i]); ok {
				all[i].Samples = append(all[i].Samples, cost)
			}
		}
	}
	return all
}

// calibrate finds how often work is to be repeated to take a while by the
// contestant's own clock: what it does besides does not count.
func calibrate(while time.Duration, work func(n int) (cost float64, ok bool)) int {
	for n := 1; ; n = min(4*n, maxRepeats) {
		cost, ok := work(n)
		if !ok {
			return 1
		}
		spent := time.Duration(cost * float64(n))
		if spent >= while/4 || n == maxRepeats {
			return max(1, min(maxRepeats, int(math.Round(float64(while)/max(cost, 1)))))
		}
	}
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
func ratioOf(a, b series) summary {
	var all []float64
	for i := range min(len(a.Samples), len(b.Samples)) {
		all = append(all, a.Samples[i]/b.Samples[i])
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

// Format writes a cost with a unit that suits its size.
func (u unit) Format(cost float64) string {
	units, step := []string{" ns", " µs", " ms", " s"}, 1000.0
	if u == inBytes {
		units, step = []string{" B", " KiB", " MiB"}, 1024
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
