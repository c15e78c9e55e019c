// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestLatencyByThread(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		latency := &trace.Latency{Pair: elfnote.MustParsePairPattern("gousdt_test:three..gousdt_test:twelve")}
		times := trace.NewAggregator(trace.Aggregation{Latency: latency, Sum: true, Min: true,
			Max: true})
		distribution := trace.NewAggregator(trace.Aggregation{
			Latency: latency, Histogram: &trace.Histogram{}, By: []string{"comm", "arg0"},
		})
		opts := aggregating(times, distribution)
		opts.Mode = mode
		s := open(t, process, "gousdt_test:t[hw]*e", opts)

		process.Fire("twelve", 1) // an end without a start
		var least, most time.Duration
		const count = 20
		for range count {
			before := time.Now()
			process.Fire("three", 2) // the second one counts
			started := time.Now()
			time.Sleep(time.Millisecond)
			ending := time.Now()
			process.Fire("twelve", 1)
			least += ending.Sub(started)
			most += time.Since(before)
		}
		process.Fire("three", 1) // never ends

		all := snapshot(t, times).Rows
		qt.Assert(t, qt.HasLen(all, 1))
		row := all[0]
		qt.Assert(t, qt.Equals(row.Count, count))
		sum := time.Duration(row.Sum.Uint())
		qt.Assert(t, qt.IsTrue(least <= sum && sum <= most),
			qt.Commentf("%v is not between %v and %v", sum, least, most))
		qt.Assert(t, qt.IsTrue(row.Min.Uint() >= uint64(time.Millisecond) &&
			row.Min.Uint() <= row.Max.Uint()))
		qt.Assert(t, qt.IsTrue(row.Max.Uint() <= uint64(most)))

		histogram := snapshot(t, distribution)
		qt.Assert(t, qt.HasLen(histogram.Rows, 1))
		qt.Assert(t, qt.Equals(fmt.Sprint(histogram.Rows[0].Keys), "[target-pie -100]"))
		qt.Assert(t, qt.Equals(histogram.Rows[0].Count, count))
		qt.Assert(t, qt.Equals(histogram.Rows[0].Sum.Uint(), row.Sum.Uint()))

		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(losses, trace.Losses{Unmatched: 1, Unfinished: count + 1}))
	})
}

func TestLatencyByArgument(t *testing.T) {
	process := start(t, "target-pie")
	other := process.again(t)
	pair := elfnote.MustParsePairPattern("inlined..specs")
	var all []*trace.Aggregator
	for _, l := range []*trace.Latency{
		{Pair: pair, By: "arg0"},
		{Pair: pair, By: "arg0", DoneBy: "arg0 & 0xff"},
		{Pair: pair},
	} {
		all = append(all, trace.NewAggregator(trace.Aggregation{Latency: l, By: []string{"arg0"}}))
	}
	s := open(t, process, "gousdt_test:*[np]e[dc]*", aggregating(all...))
	process.Fire("inlined", 1) // starts 1 to 5
	other.Fire("specs", 1)     // ends 0 to 299, but of another process
	process.Fire("specs", 2)   // ends them, once
	for i, want := range [][]string{
		{"[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"},
		{"[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"},
		{"[0] 1 ?", "[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?"}, // the first five ends
	} {
		qt.Check(t, qt.DeepEquals(rows(snapshot(t, all[i])), want))
	}
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(losses, trace.Losses{Unmatched: 3 * (900 - 5)}))
}

func TestLatencyFilterIsAboutTheEnd(t *testing.T) {
	process := start(t, "target-pie")
	a := trace.NewAggregator(trace.Aggregation{
		Latency: &trace.Latency{Pair: elfnote.MustParsePairPattern("inlined..specs"), By: "arg0"},
		By:      []string{"arg0"}, Where: "start.arg0 != 2 && duration > 0",
	})
	opts := aggregating(a)
	opts.Filter = "start.arg1 > -104 && arg0 != 1" // specs has no arg1
	open(t, process, "gousdt_test:*[np]e[dc]*", opts)
	process.Fire("inlined", 1)
	process.Fire("specs", 1)
	qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), []string{"[3] 1 ?"}))
}

func TestLatencyNeedsAPair(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	path := copyOf(t, "target-pie")
	for pair, want := range map[string]string{
		"thre..twelve": `.*: there is no pair of probes thre..twelve \(the names of no two probes end .*`,
		"base":         `.*there is no pair of probes base .*`,
	} {
		a := trace.NewAggregator(trace.Aggregation{Latency: &trace.Latency{
			Pair: elfnote.MustParsePairPattern(pair)}})
		_, err := trace.Open(usdt.Target{Path: path}, aggregating(a),
			elfnote.MustParsePattern("gousdt_test:t[hw]*e"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
	// They may be attached one after the other.
	s := newSession(t, aggregating(trace.NewAggregator(trace.Aggregation{Latency: &trace.Latency{
		Pair: elfnote.MustParsePairPattern("gousdt_test:three..gousdt_test:twelve"),
	}})))
	attach(t, s, usdt.Target{Path: path}, "three", nil)
	attach(t, s, usdt.Target{Path: path}, "twelve", nil)
}
