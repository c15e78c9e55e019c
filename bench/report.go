// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"os"
	"strings"
	"text/tabwriter"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

// report is what came out of a run.
type report struct {
	machine []string
	rows    []rowResult
	tables  []tableResult
}

func (rep *report) addRow(r rowResult) {
	rep.rows = append(rep.rows, r)
	fmt.Printf("%s: %s\n", r.name, r.title)
	if r.missing != "" {
		fmt.Printf("  not run: %s\n\n", r.missing)
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range r.lines() {
		fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
	}
	w.Flush()
	for _, o := range r.outcomes {
		fmt.Printf("  %s: %s: %s\n", o.Verdict, o.Limit, o.Measured)
	}
	fmt.Println()
}

// lines returns for each contestant its name, its cost, and how much of it the
// first contestant's is.
func (r *rowResult) lines() [][]string {
	var lines [][]string
	for i, s := range r.series {
		line := []string{s.Name, "not run: " + s.Missing, ""}
		if s.Missing == "" {
			line[1] = compare.Summarize(s.Samples).Spread(r.unit.Format)
			if i > 0 {
				line[2] = compare.Ratio(r.series[0], s).Spread(compare.FormatRatio)
			}
		}
		lines = append(lines, line)
	}
	return lines
}

func (rep *report) addTable(t tableResult) {
	rep.tables = append(rep.tables, t)
	fmt.Printf("%s: %s\n", t.name, t.title)
	if t.err != nil {
		fmt.Printf("  not run: %v\n\n", t.err)
		return
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range append([][]string{t.head}, t.lines...) {
		fmt.Fprintf(w, "  %s\n", strings.Join(line, "\t"))
	}
	w.Flush()
	fmt.Println()
}

// goalHead is over goalLines.
var goalHead = []string{"work", "goal", "measured", "floor", ""}

// goalLines returns for each goal the work, the limit, what was measured of it
// and of its floor, and the verdict.
func (rep *report) goalLines() [][]string {
	var lines [][]string
	for _, r := range rep.rows {
		for _, o := range r.outcomes {
			text := o.Text
			if text == "" {
				text = r.title
			}
			if o.Note != "" {
				text += " (" + o.Note + ")"
			}
			lines = append(lines, []string{text, o.Limit, o.Measured, o.AtFloor, string(o.Verdict)})
		}
	}
	return lines
}

func (rep *report) printGoals() {
	fmt.Println("goals:")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	for _, line := range rep.goalLines() {
		verdict, rest := line[len(line)-1], line[:len(line)-1]
		fmt.Fprintf(w, "  %s\t%s\n", verdict, strings.Join(rest, "\t"))
	}
	w.Flush()
}
