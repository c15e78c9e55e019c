// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"
)

// costing is a contestant whose work has these costs, round by round.
func costing(name string, costs ...float64) contestant {
	round := 0
	return contestant{Name: name, Measure: func(int) (float64, error) {
		round++
		return costs[round-1], nil
	}}
}

func TestContestantsAreComparedWithinARound(t *testing.T) {
	// The machine gets slower and slower, for both.
	series := takeTurns([]contestant{
		costing("a", 10, 20, 40, 80, 160), costing("b", 20, 40, 80, 160, 320),
	}, 5, 1)
	qt.Check(t, qt.Equals(ratioOf(series[0], series[1]),
		summary{Median: 0.5, Low: 0.5, High: 0.5}))
}

func TestOneThatFailsEndsAloneAndSaysWhy(t *testing.T) {
	failing := contestant{Name: "failing", Measure: func(int) (float64, error) {
		return 0, errors.New("out of order")
	}}
	absent := contestant{Name: "absent", Missing: errors.New("not installed")}
	series := takeTurns([]contestant{failing, absent, costing("a", 1, 1)},
		2, 1)
	qt.Check(t, qt.StringContains(series[0].Missing, "out of order"))
	qt.Check(t, qt.Equals(series[1].Missing, "not installed"))
	qt.Check(t, qt.HasLen(series[2].Samples, 2))
}

func TestShortWorkIsRepeated(t *testing.T) {
	var times []int
	work := contestant{Name: "a", Measure: func(n int) (float64, error) {
		times = append(times, n)
		return 1000, nil
	}}
	series := takeTurns([]contestant{work}, 2, 100)
	qt.Check(t, qt.DeepEquals(times, []int{100, 100, 100})) // the first is not counted
	qt.Check(t, qt.HasLen(series[0].Samples, 2))
}

func TestGoals(t *testing.T) {
	series := func(a, b []float64) []series {
		return []series{{Name: "a", Samples: a}, {Name: "b", Samples: b},
			{Name: "c", Missing: "not installed"}}
	}
	for _, test := range []struct {
		name     string
		goal     goal
		a, b     []float64
		verdict  string
		measured string
	}{
		{
			name: "ratio that is met",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{14,
				14}, b: []float64{10, 10},
			verdict: met, measured: "1.40 (1.40 … 1.40)",
		},
		{
			name: "with what the work cannot do without",
			goal: goal{Of: "a", Than: "b", Times: 1, Plus: 4}, a: []float64{14, 14}, b: []float64{10, 10},
			verdict: met, measured: "1.00 (1.00 … 1.00)",
		},
		{
			name: "ratio that is missed",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{16,
				20}, b: []float64{10, 10},
			verdict: missed, measured: "1.80 (1.64 … 1.96)",
		},
		{
			name: "ratio that is sometimes met",
			goal: goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{10, 16,
				20}, b: []float64{10, 10, 10},
			verdict: unclear, measured: "1.60 (1.12 … 1.92)",
		},
		{
			name: "peer that is not installed",
			goal: goal{Of: "a", Than: "c", Times: 1}, a: []float64{1},
			verdict: wasNotRun, measured: "c: not installed",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			measured, verdict := test.goal.Judge(series(test.a, test.b))
			qt.Check(t, qt.Equals(verdict, test.verdict))
			qt.Check(t, qt.Equals(measured, test.measured))
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
		{inNanoseconds, 9_900, "9.9 µs"},
		{inNanoseconds, 44e6, "44 ms"},
		{inNanoseconds, 28.4e9, "28.4 s"},
		{inBytes, 208, "208 B"},
		{inBytes, 1 << 20, "1 MiB"},
	} {
		qt.Check(t, qt.Equals(test.unit.Format(test.cost), test.want))
	}
}
