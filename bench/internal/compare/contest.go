// SPDX-License-Identifier: BSD-2-Clause

// Package compare measures several ways of doing the same work, in alternation.
//
// A machine is never quiet: its clock, its caches and other programs make the
// same work cost more at one moment than at another. So the contestants take
// turns, and are compared within each round, where all have had the same
// weather. What counts is the median of these ratios, and how far they spread.
package compare

import (
	"math"
	"time"
)

// A Contestant is one way of doing the work.
type Contestant struct {
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

// A Series is what a contestant's work cost, round by round.
type Series struct {
	Name    string
	Samples []float64
	// Missing says why there are none.
	Missing string
	// Failed says that it is because the contestant failed.
	Failed bool
}

// Effort says how long to measure.
type Effort struct {
	Rounds int
	// Sample is how long a contestant works in a round, about: short work is
	// repeated.
	Sample time.Duration
}

// maxRepeats bounds how often work is done in a round, whatever the clock says.
const maxRepeats = 1 << 20

// Run lets the contestants take turns. One that fails does not take part any
// more.
func Run(contestants []Contestant, effort Effort) []Series {
	series := make([]Series, len(contestants))
	repeats := make([]int, len(contestants))
	measure := func(i, n int) (cost float64, ok bool) {
		cost, err := contestants[i].Measure(n)
		if err != nil {
			series[i].Missing, series[i].Failed = "failed: "+err.Error(), true
		}
		return cost, err == nil
	}
	for i, c := range contestants {
		series[i].Name = c.Name
		if c.Missing != nil {
			series[i].Missing = c.Missing.Error()
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
			if series[i].Missing != "" || contestants[i].MaxRounds > 0 &&
				round >= contestants[i].MaxRounds {
				continue
			}
			if cost, ok := measure(i, repeats[i]); ok {
				series[i].Samples = append(series[i].Samples, cost)
			}
		}
	}
	return series
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
