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

func TestLatencyByThreadIsTheTimeBetween(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		latency := &trace.Latency{Start: "gousdt_test:three", Done: "gousdt_test:twelve"}
		s := open(t, process, "gousdt_test:t[hw]*e", &trace.SessionOptions{Mode: mode, Aggregations: []trace.Aggregation{
			{Latency: latency, Functions: trace.Sum | trace.Min | trace.Max},
			{Latency: latency, Histogram: &trace.Histogram{}, By: []string{"comm", "arg0"}},
		}})

		process.Fire("twelve", 1) // an end without a start
		var least, most time.Duration
		const times = 20
		for range times {
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

		snapshot, err := s.Snapshot(0)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
		row := snapshot.Rows[0]
		qt.Assert(t, qt.Equals(row.Count, times))
		sum := time.Duration(row.Sum.Uint())
		qt.Assert(t, qt.IsTrue(least <= sum && sum <= most), qt.Commentf("%v is not between %v and %v", sum, least, most))
		qt.Assert(t, qt.IsTrue(row.Min.Uint() >= uint64(time.Millisecond) && row.Min.Uint() <= row.Max.Uint()))
		qt.Assert(t, qt.IsTrue(row.Max.Uint() <= uint64(most)))

		histogram, err := s.Snapshot(1)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(histogram.Rows, 1))
		qt.Assert(t, qt.Equals(fmt.Sprint(histogram.Rows[0].Keys), "[target-pie -100]"))
		qt.Assert(t, qt.Equals(histogram.Rows[0].Count, times))
		qt.Assert(t, qt.Equals(histogram.Rows[0].Sum.Uint(), row.Sum.Uint()))

		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(losses, trace.Losses{Unmatched: 1}))
	})
}

func TestLatencyByArgument(t *testing.T) {
	process := start(t, "target-pie")
	other := process.again(t)
	latencies := []*trace.Latency{
		{Start: "inlined", Done: "specs", By: "arg0"},
		{Start: "inlined", Done: "specs", By: "arg0", DoneBy: "arg0 & 0xff"},
		{Start: "inlined", Done: "specs", By: "arg0", AnyProcess: true},
		{Start: "inlined", Done: "specs"},
	}
	opts := &trace.SessionOptions{}
	for _, l := range latencies {
		opts.Aggregations = append(opts.Aggregations, trace.Aggregation{Latency: l, By: []string{"arg0"}})
	}
	s := open(t, process, "gousdt_test:*[np]e[dc]*", opts)
	process.Fire("inlined", 1) // starts 1 to 5
	other.Fire("specs", 1)     // ends 0 to 299, but of another process
	process.Fire("specs", 2)   // ends them, once
	for i, want := range [][]string{
		{"[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"},
		{"[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"},
		{"[1] 1 ?", "[2] 1 ?", "[3] 1 ?", "[4] 1 ?", "[5] 1 ?"},
		{"[0] 1 ?"}, // the thread's last start, ended by the first end
	} {
		snapshot, err := s.Snapshot(i)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.DeepEquals(rows(snapshot), want))
	}
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(losses, trace.Losses{Unmatched: 4*900 - 5 - 5 - 5 - 1}))
}

// An end that is never passed looks as if nothing happened.
func TestLatencyWithoutOneEndIsAnError(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	path := testprog.Path(t, "target-pie")
	for _, test := range []struct {
		latency trace.Latency
		want    string
	}{
		{trace.Latency{Start: "thre", Done: "twelve"},
			`options: aggregation 0: latency: start: .*no probe matches thre \(nearest: gousdt_test:three.*`},
		{trace.Latency{Start: "three", Done: "gousdt_test:twelv"},
			`options: aggregation 0: latency: done: .*no probe matches gousdt_test:twelv \(nearest: gousdt_test:twelve.*`},
		{trace.Latency{Start: "three", Done: "sizes"},
			`options: aggregation 0: latency: done: no site of sizes is watched: the pattern to open must pick it.*`},
		{trace.Latency{Start: "three", Done: "twelve", By: "arg2", DoneBy: "arg99"},
			`options: aggregation 0: latency: done: no site of twelve is watched: .*it must have the arguments.*`},
	} {
		_, err := trace.Open(usdt.Target{Path: path}, &trace.SessionOptions{
			Aggregations: []trace.Aggregation{{Latency: &test.latency}},
		}, elfnote.MustParsePattern("gousdt_test:t[hw]*e"))
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
	// They may be attached one after the other.
	s := newSession(t, &trace.SessionOptions{Aggregations: []trace.Aggregation{{Latency: &trace.Latency{Start: "three", Done: "twelve"}}}})
	attach(t, s, usdt.Target{Path: path}, "three", nil)
	attach(t, s, usdt.Target{Path: path}, "twelve", nil)
}

func TestFilterOfALatencyIsAboutItsStart(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:*[np]e[dc]*", &trace.SessionOptions{
		Filter: "arg1 > -104", // specs has no arg1
		Aggregations: []trace.Aggregation{{
			Latency: &trace.Latency{Start: "inlined", Done: "specs", By: "arg0"}, By: []string{"arg0"}, Where: "arg0 != 2",
		}},
	})
	process.Fire("inlined", 1)
	process.Fire("specs", 1)
	snapshot, err := s.Snapshot(0)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(rows(snapshot), []string{"[1] 1 ?", "[3] 1 ?"}))
}
