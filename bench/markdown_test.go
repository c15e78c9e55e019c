// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
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
				row: row{name: "some", title: "some work", goals: []goal{{ours, "fast", 1}}},
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
