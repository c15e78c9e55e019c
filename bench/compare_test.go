// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// costing is a contestant whose work costs what is said, round by round.
func costing(name string, costs ...float64) contestant {
	round := 0
	return contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
		round++
		return costs[round-1], nil
	}}
}

func TestContestantsAreComparedWithinARound(t *testing.T) {
	// The machine gets slower and slower, for both.
	series := takeTurns([]contestant{
		costing("a", 10, 20, 40, 80, 160), costing("b", 20, 40, 80, 160, 320),
	}, effort{Rounds: 5})
	qt.Check(t, qt.Equals(ratioOf(series[0], series[1]),
		summary{Median: 0.5, Low: 0.5, High: 0.5}))
}

func TestOneThatFailsEndsAloneAndSaysWhy(t *testing.T) {
	failing := contestant{Name: "failing", Once: true, Measure: func(int) (float64, error) {
		return 0, errors.New("out of order")
	}}
	absent := contestant{Name: "absent", Missing: errors.New("not installed")}
	series := takeTurns([]contestant{failing, absent, costing("a", 1, 1)},
		effort{Rounds: 2})
	qt.Check(t, qt.StringContains(series[0].Missing, "out of order"))
	qt.Check(t, qt.Equals(series[1].Missing, "not installed"))
	qt.Check(t, qt.HasLen(series[2].Samples, 2))
}

func TestLongWorkTakesPartInAsManyRoundsAsItSays(t *testing.T) {
	long := costing("long", 1, 1)
	long.MaxRounds = 2
	series := takeTurns([]contestant{long, costing("a", 1, 1, 1)},
		effort{Rounds: 3})
	qt.Check(t, qt.HasLen(series[0].Samples, 2))
	qt.Check(t, qt.HasLen(series[1].Samples, 3))
}

func TestShortWorkIsRepeatedByItsOwnClock(t *testing.T) {
	var repeats []int
	work := contestant{Name: "a", Measure: func(n int) (float64, error) {
		repeats = append(repeats, n)
		return 1000, nil // nanoseconds, whatever the wall clock says
	}}
	takeTurns([]contestant{work}, effort{Rounds: 1, Sample: time.Millisecond})
	qt.Check(t, qt.Equals(repeats[len(repeats)-1], 1000))
}

func TestGoals(t *testing.T) {
	series := func(a, b []float64) []series {
		return []series{{Name: "a", Samples: a}, {Name: "b", Samples: b},
			{Name: "c", Missing: "not installed"}}
	}
	for _, test := range []struct {
		name     string
		goal     goal
		unit     unit
		a, b     []float64
		verdict  verdict
		measured string
		limit    string
	}{
		{
			name: "ratio that is met",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{14,
				14}, b: []float64{10, 10},
			verdict: met, measured: "1.40 (1.40 … 1.40)", limit: "at most 1.50 × b",
		},
		{
			name: "ratio that is missed",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{16,
				20}, b: []float64{10, 10},
			verdict: missed, measured: "1.80 (1.64 … 1.96)", limit: "at most 1.50 × b",
		},
		{
			name: "ratio that is sometimes met",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{10, 16,
				20}, b: []float64{10, 10, 10},
			verdict: unclear, measured: "1.60 (1.12 … 1.92)", limit: "at most 1.50 × b",
		},
		{
			name:    "absolute",
			goal:    goal{Of: "a", Most: 12 << 20},
			unit:    inBytes,
			a:       []float64{13 << 20},
			verdict: missed, measured: "13 MiB (13 MiB … 13 MiB)", limit: "at most 12 MiB",
		},
		{
			name: "peer that is not installed",
			goal: goal{Of: "a", Than: "c", Times: 1}, a: []float64{1},
			verdict: wasNotRun, measured: "c: not installed", limit: "at most 1.00 × c",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			outcome := test.goal.Judge(series(test.a, test.b), test.unit)
			qt.Check(t, qt.Equals(outcome.Verdict, test.verdict))
			qt.Check(t, qt.Equals(outcome.Measured, test.measured))
			qt.Check(t, qt.Equals(outcome.Limit, test.limit))
		})
	}
}

func TestCostsAreWrittenInASuitableUnit(t *testing.T) {
	for _, test := range []struct {
		unit unit
		cost float64
		want string
	}{
		{inNanoseconds, 469, "469 ns"},
		{inNanoseconds, 9_900, "9.90 µs"},
		{inNanoseconds, 44e6, "44 ms"},
		{inNanoseconds, 28.4e9, "28.4 s"},
		{inBytes, 208, "208 B"},
		{inBytes, 1 << 20, "1.00 MiB"},
	} {
		qt.Check(t, qt.Equals(test.unit.Format(test.cost), test.want))
	}
}
