// SPDX-License-Identifier: BSD-2-Clause

package compare_test

import (
	"errors"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

// costing is a contestant whose work costs what is said, round by round.
func costing(name string, costs ...float64) compare.Contestant {
	round := 0
	return compare.Contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
		round++
		return costs[round-1], nil
	}}
}

func TestContestantsAreComparedWithinARound(t *testing.T) {
	// The machine gets slower and slower, for both.
	series := compare.Run([]compare.Contestant{
		costing("a", 10, 20, 40, 80, 160), costing("b", 20, 40, 80, 160, 320),
	}, compare.Effort{Rounds: 5})
	qt.Check(t, qt.Equals(compare.Ratio(series[0], series[1]),
		compare.Summary{Median: 0.5, Low: 0.5, High: 0.5}))
	qt.Check(t, qt.Equals(compare.Difference(series[1], series[0]).Median, 40))
}

func TestOneThatFailsEndsAloneAndSaysWhy(t *testing.T) {
	failing := compare.Contestant{Name: "failing", Once: true, Measure: func(int) (float64, error) {
		return 0, errors.New("out of order")
	}}
	absent := compare.Contestant{Name: "absent", Missing: errors.New("not installed")}
	series := compare.Run([]compare.Contestant{failing, absent, costing("a", 1, 1)},
		compare.Effort{Rounds: 2})
	qt.Check(t, qt.StringContains(series[0].Missing, "out of order"))
	qt.Check(t, qt.IsTrue(series[0].Failed))
	qt.Check(t, qt.Equals(series[1].Missing, "not installed"))
	qt.Check(t, qt.IsFalse(series[1].Failed))
	qt.Check(t, qt.HasLen(series[2].Samples, 2))
}

func TestLongWorkTakesPartInAsManyRoundsAsItSays(t *testing.T) {
	long := costing("long", 1, 1)
	long.MaxRounds = 2
	series := compare.Run([]compare.Contestant{long, costing("a", 1, 1, 1)},
		compare.Effort{Rounds: 3})
	qt.Check(t, qt.HasLen(series[0].Samples, 2))
	qt.Check(t, qt.HasLen(series[1].Samples, 3))
}

func TestShortWorkIsRepeatedByItsOwnClock(t *testing.T) {
	var repeats []int
	work := compare.Contestant{Name: "a", Measure: func(n int) (float64, error) {
		repeats = append(repeats, n)
		return 1000, nil // nanoseconds, whatever the wall clock says
	}}
	compare.Run([]compare.Contestant{work}, compare.Effort{Rounds: 1, Sample: time.Millisecond})
	qt.Check(t, qt.Equals(repeats[len(repeats)-1], 1000))
}

func TestGoals(t *testing.T) {
	series := func(a, b []float64) []compare.Series {
		return []compare.Series{{Name: "a", Samples: a}, {Name: "b", Samples: b},
			{Name: "c", Missing: "not installed"}}
	}
	for _, test := range []struct {
		name     string
		goal     compare.Goal
		unit     compare.Unit
		a, b     []float64
		verdict  compare.Verdict
		measured string
		limit    string
	}{
		{
			name: "ratio that is met",
			goal: compare.Goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{14,
				14}, b: []float64{10, 10},
			verdict: compare.Met, measured: "1.40 (1.40 … 1.40)", limit: "at most 1.50 × b",
		},
		{
			name: "ratio that is missed",
			goal: compare.Goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{16,
				20}, b: []float64{10, 10},
			verdict: compare.Missed, measured: "1.80 (1.64 … 1.96)", limit: "at most 1.50 × b",
		},
		{
			name: "ratio that is sometimes met",
			goal: compare.Goal{Of: "a", Than: "b", Times: 1.5}, a: []float64{10, 16,
				20}, b: []float64{10, 10, 10},
			verdict: compare.Unclear, measured: "1.60 (1.12 … 1.92)", limit: "at most 1.50 × b",
		},
		{
			name: "difference",
			goal: compare.Goal{Of: "a", Than: "b",
				More: 100e3}, a: []float64{150e3}, b: []float64{100e3},
			verdict:  compare.Met,
			measured: "+50 µs (+50 µs … +50 µs)",
			limit:    "b, plus at most 100 µs",
		},
		{
			name: "difference that is none",
			goal: compare.Goal{Of: "a", Than: "b", More: 30}, a: []float64{500}, b: []float64{1100},
			verdict:  compare.Met,
			measured: "-600 ns (-600 ns … -600 ns)",
			limit:    "b, plus at most 30 ns",
		},
		{
			name:    "absolute",
			goal:    compare.Goal{Of: "a", More: 12 << 20},
			unit:    compare.Bytes,
			a:       []float64{13 << 20},
			verdict: compare.Missed, measured: "13 MiB (13 MiB … 13 MiB)", limit: "at most 12 MiB",
		},
		{
			name: "peer that is not installed",
			goal: compare.Goal{Of: "a", Than: "c", Times: 1}, a: []float64{1},
			verdict: compare.NotRun, measured: "c: not installed", limit: "at most 1.00 × c",
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

func TestGoalsThatTheFloorMissesAreBelowIt(t *testing.T) {
	ratio := compare.Goal{Of: "a", Than: "b", Times: 0.8,
		Floor: &compare.Floor{Name: "nothing", Of: []string{"x", "y", "absent"}}}
	difference := compare.Goal{Of: "a", Than: "b", More: 30,
		Floor: &compare.Floor{Name: "nothing", Of: []string{"x"}, Than: "y"}}
	for _, test := range []struct {
		name       string
		goal       compare.Goal
		a, b, x, y []float64
		verdict    compare.Verdict
		floor      string
	}{
		{
			"the floor misses it", ratio, []float64{95, 95}, []float64{100, 100}, []float64{94,
				94}, []float64{90, 90},
			compare.BelowFloor, "nothing: 0.90 (0.90 … 0.90)",
		},
		{
			"the floor is within it", ratio, []float64{95, 95}, []float64{100, 100}, []float64{94,
				94}, []float64{80, 80},
			compare.Missed, "nothing: 0.80 (0.80 … 0.80)",
		},
		{
			"the floor is sometimes within it", ratio, []float64{95, 95}, []float64{100,
				100}, []float64{94, 94}, []float64{70, 94},
			compare.Missed, "nothing: 0.82 (0.72 … 0.92)",
		},
		{
			"it is met", ratio, []float64{80, 80}, []float64{100, 100}, []float64{94,
				94}, []float64{90, 90},
			compare.Met, "nothing: 0.90 (0.90 … 0.90)",
		},
		{
			"difference", difference, []float64{600, 600}, []float64{550, 550}, []float64{540,
				540}, []float64{500, 500},
			compare.BelowFloor, "nothing: +40 ns (+40 ns … +40 ns)",
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			outcome := test.goal.Judge([]compare.Series{
				{Name: "a", Samples: test.a}, {Name: "b", Samples: test.b}, {Name: "x",
					Samples: test.x}, {Name: "y", Samples: test.y},
				{Name: "absent", Missing: "not installed"},
			}, compare.Nanoseconds)
			qt.Check(t, qt.Equals(outcome.Verdict, test.verdict))
			qt.Check(t, qt.Equals(outcome.AtFloor, test.floor))
		})
	}
}

func TestCostsAreWrittenInASuitableUnit(t *testing.T) {
	for _, test := range []struct {
		unit compare.Unit
		cost float64
		want string
	}{
		{compare.Nanoseconds, 469, "469 ns"},
		{compare.Nanoseconds, 9_900, "9.90 µs"},
		{compare.Nanoseconds, 44e6, "44 ms"},
		{compare.Nanoseconds, 28.4e9, "28.4 s"},
		{compare.Bytes, 208, "208 B"},
		{compare.Bytes, 1 << 20, "1.00 MiB"},
		{compare.Count, 128, "128"},
	} {
		qt.Check(t, qt.Equals(test.unit.Format(test.cost), test.want))
	}
}
