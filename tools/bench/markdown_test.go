// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestResultsReplaceThoseOfTheLastRun(t *testing.T) {
	page := "# Performance\n\n" + beginMarker + "\n\nold\n\n" + endMarker + "\n\nThe end.\n"
	updated, err := replaceResults(page, "new\n")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t,
		qt.Equals(updated,
			"# Performance\n\n"+beginMarker+"\n\nnew\n\n"+endMarker+"\n\nThe end.\n"))
	again, err := replaceResults(updated, "new\n")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(again, updated))

	_, err = replaceResults("# Another page\n", "new\n")
	qt.Check(t, qt.ErrorMatches(err, "no place for the results.*"))
}

func TestReportNamesWhatWasNotRun(t *testing.T) {
	rep := report{
		machine: "- a machine\n",
		rows: []rowResult{
			{
				row: row{name: "some", title: "some work", goals: []goal{{Of: ours, Than: "fast", Times: 1}}},
				series: []series{
					{Name: ours, Samples: []float64{10, 10}}, {Name: "fast",
						Samples: []float64{5, 5}}, {Name: "absent", Missing: "not installed"},
				},
			},
			{row: row{title: "other work"}, missing: "no libjvm.so"},
		},
	}
	text := rep.markdown()
	for _, line := range []string{
		"- a machine",
		"| some | gousdt | 1.00 × fast | 2.00 (2.00 … 2.00) | missed |",
		"| fast   | 5 ns (5 ns … 5 ns)     | 2.00 (2.00 … 2.00)               |",
		"| absent | not run: not installed |                                  |",
		"Not run: no libjvm.so.",
	} {
		qt.Check(t, qt.StringContains(text, line))
	}
}

func TestCostsAreRatiosToTheApplicationAlone(t *testing.T) {
	rep := report{rows: []rowResult{
		{row: row{name: "hit/other", title: "other"}},
		{row: row{name: applications + "shop", title: "a sale"}, series: []series{
			{Name: untraced, Samples: []float64{80, 160}, Tails: []float64{100, 200}},
			{Name: "traced", Samples: []float64{100, 200}, Tails: []float64{300, 600}},
			{Name: "absent", Missing: "not installed"},
		}},
		{row: row{name: "grow/sites", title: "sites", sizes: []int{1, 10, 100}}, series: []series{
			{Name: sized(listing, 1), Samples: []float64{1}},
			{Name: sized(listing, 10), Samples: []float64{10}},
			{Name: sized(listing, 100), Samples: []float64{100}},
		}},
	}}
	text := rep.costs()
	for _, line := range []string{
		"| a sale           | speed                  | p99                |",
		"| nothing attached | 120 ns                 | 150 ns             |",
		"| traced           | 0.80 (0.80 … 0.80)     | 3.00 (3.00 … 3.00) |",
		"| absent           | not run: not installed |                    |",
		"| list | 1 ns | 10 ns | 100 ns | 1.00     |",
	} {
		qt.Check(t, qt.StringContains(text, line))
	}
	qt.Check(t, qt.IsFalse(strings.Contains(text, "other")))
}
