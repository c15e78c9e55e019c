// SPDX-License-Identifier: BSD-2-Clause

package compare

import (
	"cmp"
	"fmt"
	"math"
)

// A Goal says what a contestant's work may cost: at most Times what Than costs,
// plus More. Without Than it is at most More.
type Goal struct {
	// Text names the work where the contest's own title would not tell it.
	Text string
	// Of and Than are names of contestants.
	Of, Than string
	Times    float64
	More     float64
	// Note is printed with the outcome.
	Note string
	// Floor, if there is one, is compared with the goal in the same rounds.
	Floor *Floor
}

// A Floor is who does the least that the work of a goal needs. Where even that
// is beyond the goal, nobody can meet it.
type Floor struct {
	// Name is what a report calls it.
	Name string
	// Of are names of contestants. The one that costs least counts.
	Of []string
	// Than is who they are compared with, if not the goal's own.
	Than string
}

// Verdict says whether a goal was met.
type Verdict string

// The verdicts. Unclear is a median beyond the limit with a spread that reaches
// to where the goal would be met. BelowFloor is a goal that was not met and
// that the floor misses, too.
const (
	Met        Verdict = "met"
	Missed     Verdict = "missed"
	Unclear    Verdict = "unclear"
	BelowFloor Verdict = "below the floor"
	NotRun     Verdict = "not run"
)

// An Outcome is a goal with what came out.
type Outcome struct {
	Goal
	Verdict Verdict
	// Limit, Measured and AtFloor are in words, the last one empty for a goal
	// without a floor.
	Limit, Measured, AtFloor string
}

// Judge compares a goal with what was measured.
func (g Goal) Judge(series []Series, unit Unit) Outcome {
	of, than := find(series, g.Of), find(series, g.Than)
	measured := g.compare(of, than)
	o := Outcome{Goal: g, Verdict: g.verdict(measured), Limit: g.limit(unit),
		Measured: measured.Spread(g.format(unit))}
	if o.Verdict == NotRun {
		for _, s := range []Series{of, than} {
			if s.Missing != "" {
				o.Measured = fmt.Sprintf("%s: %s", s.Name, s.Missing)
			}
		}
		return o
	}
	if g.Floor == nil {
		return o
	}
	floor := g.atFloor(series)
	o.AtFloor = fmt.Sprintf("%s: %s", g.Floor.Name, floor.Spread(g.format(unit)))
	if o.Verdict != Met && g.verdict(floor) == Missed {
		o.Verdict = BelowFloor
	}
	return o
}

// atFloor compares the floor as the goal's own contestant is compared.
func (g Goal) atFloor(series []Series) Summary {
	than := find(series, cmp.Or(g.Floor.Than, g.Than))
	least := Summarize(nil)
	for _, name := range g.Floor.Of {
		if s := g.compare(find(series, name), than); math.IsNaN(least.Median) ||
			s.Median < least.Median {
			least = s
		}
	}
	return least
}

func (g Goal) compare(of, than Series) Summary {
	switch {
	case g.Than == "":
		return Summarize(of.Samples)
	case g.More != 0:
		return Difference(of, than)
	default:
		return Ratio(of, than)
	}
}

func (g Goal) verdict(measured Summary) Verdict {
	limit := g.More
	if g.Times != 0 {
		limit = g.Times
	}
	switch {
	case math.IsNaN(measured.Median):
		return NotRun
	case measured.Median <= limit:
		return Met
	case measured.Low > limit:
		return Missed
	default:
		return Unclear
	}
}

func (g Goal) limit(unit Unit) string {
	switch {
	case g.Than == "":
		return "at most " + unit.Format(g.More)
	case g.More != 0:
		return fmt.Sprintf("%s, plus at most %s", g.Than, unit.Format(g.More))
	default:
		return fmt.Sprintf("at most %s × %s", FormatRatio(g.Times), g.Than)
	}
}

// format returns what writes a number that is compared with the goal.
func (g Goal) format(unit Unit) func(float64) string {
	switch {
	case g.Than == "":
		return unit.Format
	case g.More != 0:
		return func(cost float64) string {
			if cost < 0 {
				return "-" + unit.Format(-cost)
			}
			return "+" + unit.Format(cost)
		}
	default:
		return FormatRatio
	}
}

func find(series []Series, name string) Series {
	for _, s := range series {
		if s.Name == name {
			return s
		}
	}
	return Series{Name: name}
}
