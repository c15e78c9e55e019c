// SPDX-License-Identifier: BSD-2-Clause

package compare

import (
	"fmt"
	"math"
)

// A Goal says what a contestant's work may cost: at most Times what Than costs, plus More. Without Than it is at most
// More.
type Goal struct {
	// Text names the work where the contest's own title would not tell it.
	Text string
	// Of and Than are names of contestants.
	Of, Than string
	Times    float64
	More     float64
	// Note is printed with the outcome.
	Note string
}

// Verdict says whether a goal was met.
type Verdict string

// The verdicts. Unclear is a median beyond the limit with a spread that reaches to where the goal would be met.
const (
	Met     Verdict = "met"
	Missed  Verdict = "missed"
	Unclear Verdict = "unclear"
	NotRun  Verdict = "not run"
)

// An Outcome is a goal with what came out.
type Outcome struct {
	Goal
	Verdict Verdict
	// Limit and Measured are in words.
	Limit, Measured string
}

// Judge compares a goal with what was measured.
func (g Goal) Judge(series []Series, unit Unit) Outcome {
	of, than := find(series, g.Of), find(series, g.Than)
	var measured Summary
	limit := g.More
	format := unit.Format
	o := Outcome{Goal: g}
	switch {
	case g.Than == "":
		measured = Summarize(of.Samples)
		o.Limit = "at most " + format(g.More)
	case g.More != 0:
		measured = Difference(of, than)
		format = func(cost float64) string {
			if cost < 0 {
				return "-" + unit.Format(-cost)
			}
			return "+" + unit.Format(cost)
		}
		o.Limit = fmt.Sprintf("%s, plus at most %s", g.Than, unit.Format(g.More))
	default:
		measured = Ratio(of, than)
		limit, format = g.Times, FormatRatio
		o.Limit = fmt.Sprintf("at most %s × %s", FormatRatio(g.Times), g.Than)
	}
	o.Measured = measured.Spread(format)
	switch {
	case math.IsNaN(measured.Median):
		o.Verdict = NotRun
		for _, s := range []Series{of, than} {
			if s.Missing != "" {
				o.Measured = fmt.Sprintf("%s: %s", s.Name, s.Missing)
			}
		}
	case measured.Median <= limit:
		o.Verdict = Met
	case measured.Low > limit:
		o.Verdict = Missed
	default:
		o.Verdict = Unclear
	}
	return o
}

func find(series []Series, name string) Series {
	for _, s := range series {
		if s.Name == name {
			return s
		}
	}
	return Series{Name: name}
}
