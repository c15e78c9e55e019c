// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

func TestDurationsHaveThreeDigitsAndAUnit(t *testing.T) {
	for ns, want := range map[float64]string{
		0: "0ns", 1: "1ns", 512: "512ns", 999: "999ns", 1024: "1.02us", 65536: "65.5us",
		131072: "131us", 1e6: "1ms",
		1048576: "1.05ms", 1.5e9: "1.50s", 3.6e12: "3600s", 12.34: "12.3ns", 99.96: "100ns",
		9.999: "10.0ns",
	} {
		qt.Check(t, qt.Equals(formatDuration(ns), want), qt.Commentf("%v", ns))
	}
	for x, want := range map[float64]string{149.5: "149.5", -2e9: "-2000000000", 3.14159: "3.142",
		12345.6: "12346", 1.5e308: "1.5e+308", 9.123456e18: "9.123e+18", 1e15: "1e+15",
		math.NaN(): "-", math.Inf(1): "+Inf"} {
		qt.Check(t, qt.Equals(formatAverage(x), want))
	}
}

func TestSummarySaysWhoseEventsWereLost(t *testing.T) {
	s := &summary{losses: losses{Losses: trace.Losses{Events: 15},
		owners: []trace.OwnerLoss{{CgroupID: 7, Events: 12}, {User: 1000, Events: 3}}}}
	qt.Check(t, qt.StringContains(s.text(),
		"\nof the lost events 12 of cgroup 7\nof the lost events 3 of user 1000\n"))
}

func TestSummarySaysWhichKeysHaveNoRow(t *testing.T) {
	// Each bucket of a histogram takes room in the kernel: 112 keys can be too
	// many at once, and are not more than 16384.
	s := &summary{others: 7, overflow: 7, maxKeys: 16384}
	qt.Check(t, qt.IsFalse(strings.Contains(s.text(), "16384")), qt.Commentf("%s", s.text()))
	s.others++
	qt.Check(t, qt.StringContains(s.text(), "\n1 hits are of the less frequent keys in (other): "+
		"there are more than 16384 (--max-keys)\n7 hits are in (other) because "))
}

func TestSummarySaysHowManyStacksWereCut(t *testing.T) {
	s := &summary{frames: &stack.Counts{Frames: 9}}
	qt.Check(t, qt.Not(qt.StringContains(s.text(), "cut")))
	s.frames.CutStacks = 2
	qt.Check(t, qt.StringContains(s.text(),
		"\n2 stacks cut: deeper, or costlier to unwind, than a limit allows\n"))
}

// Tables are no wider than the terminal, however large the numbers are.
func TestTablesOfLargeNumbersFitTheTerminal(t *testing.T) {
	for _, width := range []int{60, 80, 120} {
		for _, count := range []uint64{7, 123_456, 1_234_567, 123_456_789_012} {
			for _, by := range [][]string{nil, {"str(arg0)"}, {"comm", "str(arg0)"}} {
				row := trace.Row{Count: count, Partial: true, Sum: trace.ValueOf(count * 1000),
					Min: trace.ValueOf(uint64(1)), Max: trace.ValueOf(count)}
				for range by {
					row.Keys = append(row.Keys, trace.ValueOf(strings.Repeat("select ", 20)))
				}
				s := &trace.Snapshot{By: by, Rows: []trace.Row{row}}
				s.Time = s.Start.Add(time.Second)
				for _, sums := range []bool{false, true} {
					var out bytes.Buffer
					a := &aggregation{kind: kindSum, title: "t", Aggregation: trace.Aggregation{
						Sum: sums, Max: sums, Histogram: &trace.Histogram{}}}
					tr := &tracer{prepared: prepared{options: &options{}, targets: &targets{}}}
					p := &textPrinter{tracer: tr, out: &out,
						width: width}
					p.rows(a, s)
					for line := range strings.Lines(out.String()) {
						qt.Check(t, qt.IsTrue(len(strings.TrimRight(line, " \n")) <= width),
							qt.Commentf("%d: %s", width, line))
					}
				}
			}
		}
	}
}
