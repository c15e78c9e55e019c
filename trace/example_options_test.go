// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"math"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A cookie for each site, and several attachments that end together.
func ExampleSession_Attach() {
	s, err := trace.New(&trace.SessionOptions{Filter: "cookie != 0"})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	options := &usdt.AttachOptions{
		SiteCookie: func(site usdt.Site) uint64 { return uint64(len(site.Args)) },
	}
	for _, path := range []string{"libc.so.6", "libstdc++.so.6"} {
		if _, err := s.Attach(usdt.Target{Path: path}, options); err != nil {
			log.Print(err) // the others can be watched all the same
		}
	}
	for _, a := range s.Attachments() {
		fmt.Printf("%s: %d sites are watched\n", a.Path(), len(a.Sites()))
		for _, site := range a.Sites() {
			fmt.Printf("%s:%s has the cookie %d\n", site.Provider, site.Name, site.Cookie)
		}
	}
	all := s.Attachments()
	if len(all) > 1 {
		err = s.Detach() // in the time of one
	} else if len(all) == 1 {
		err = all[0].Close()
	}
	if err != nil {
		log.Fatal(err)
	}
}

// A program of one's own runs at each statement that took long. It was loaded
// as a kprobe.
func ExampleSessionOptions_next() {
	var unwinder *ebpf.Program
	s, err := trace.New(&trace.SessionOptions{
		Filter: "duration > 5ms",
		Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("postgresql:query")}},
			Next:  unwinder,
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	go func() {
		for event := range s.Events(context.Background()) {
			fmt.Println("thread", event.TID, "was hit at", event.Monotonic)
		}
	}()
	// When a stack has come from the unwinder, its event has come after this:
	if err := s.Drain(context.Background()); err != nil {
		log.Fatal(err)
	}
}

// The registers at each exception of a C++ program, and nothing about threads.
func ExampleEvent_registers() {
	s, err := trace.Open(usdt.Target{Path: "libstdc++.so.6"}, &trace.SessionOptions{
		Events: &trace.EventOptions{
			ArgumentsOnly: true, // smaller events: no time, no process
			StackCopy:     4096, // with registers
		},
	}, elfnote.Exact("libstdcxx", "throw"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	var lost trace.LostError
	for event, err := range s.Events(context.Background()) {
		switch r := event.Registers; {
		case errors.As(err, &lost):
			log.Print(uint64(lost), " events found no room")
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Printf("%v: at %#x, stack %#x, general registers %#x\n", r.Machine, r.PC,
				r.SP, r.General)
		}
	}
}

// What an argument is decides how it is to be read.
func ExampleValue_Kind() {
	numberOf := func(v trace.Value) (number float64, ok bool) {
		if !v.IsPresent() {
			return 0, false // the argument cannot be read at all, or not at this hit
		}
		switch v.Kind() {
		case trace.Signed:
			return float64(v.Int()), true
		case trace.Float:
			return v.Float(), true
		default:
			return float64(v.Uint()), true
		}
	}
	fmt.Println(numberOf(trace.ValueOf(int64(-3))))
	fmt.Println(numberOf(trace.ValueOf(uint64(math.MaxUint32))))
	// Output:
	// -3 true
	// 4.294967295e+09 true
}

// How long the waits of PostgreSQL are, and from which place in its code. Only
// one probe's argument is read as a text.
func ExampleHistogram() {
	lengths := trace.NewAggregator(trace.Aggregation{
		Probes:    []elfnote.Pattern{elfnote.Exact("postgresql", "lwlock__wait__start")},
		Value:     "arg1",
		By:        []string{"probe", "site"},
		Histogram: trace.Exponential(1, 0), // 1, 2 to 3, 4 to 7, ...
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregators: []*trace.Aggregator{lengths},
			Events: &trace.EventOptions{
				Captures: []trace.Capture{{
					// Not of other probes.
					Probes: []elfnote.Pattern{elfnote.Exact("postgresql", "query__start")},
					Arg:    "arg0",
				}},
			},
		}, elfnote.MustParsePattern("postgresql:*"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	time.Sleep(time.Second)
	snapshot, err := lengths.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range snapshot.Rows {
		fmt.Printf("%s at %#x:\n", row.Keys[0], row.Keys[1].Uint())
		for _, bucket := range row.Histogram(0) {
			fmt.Println(bucket.Low, bucket.High, bucket.Count)
		}
	}
}

// Smaller limits for each container and user, on a host where anybody may start
// containers, and the numbers of the watch.
func ExampleWatch() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	opts := &watch.Options{}
	opts.Limits.FileSites, opts.Limits.OwnerSites = 2_000, 10_000
	w, err := trace.WatchSessions(opts, nil, trace.WatchSession{Session: s,
		Patterns: []elfnote.Pattern{elfnote.MustParsePattern("python:gc__*")}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.SyncAll(context.Background()); err != nil {
		log.Fatal(err)
	}
	for _, a := range s.Attachments() {
		fmt.Printf("%q\n", a.Path())
	}
	stats := w.Stats()
	fmt.Printf("%d sites, %d files over a limit\n", stats.Sites, stats.OverLimit)
}

// Times as metrics want them: in seconds, and with chosen limits.
func ExampleHistogram_seconds() {
	statements := &trace.Latency{Pair: elfnote.MustParsePairPattern("postgresql:query")}
	var aggregators []*trace.Aggregator
	for _, h := range []*trace.Histogram{
		trace.Exponential(0, uint64(time.Second)),
		trace.Limits(int64(time.Millisecond), int64(time.Second)),
	} {
		aggregators = append(aggregators,
			trace.NewAggregator(trace.Aggregation{Latency: statements, Histogram: h}))
	}
	opts := &trace.SessionOptions{Aggregators: aggregators}
	fmt.Println(opts.Validate())
	// Output: <nil>
}

// Wait until the file of a session is replaced in place.
func ExampleAttachment_Done() {
	session, err := trace.Open(usdt.Target{Path: "/opt/server"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for _, a := range session.Attachments() {
		<-a.Done()
		fmt.Println(a.Path(), a.Err()) // usdt.ErrWritten if the file is about to be written to
	}
}

// The sum of all rows since the start, as exporters have it.
func ExampleExponentialHistogram_Add() {
	var sum trace.ExponentialHistogram
	for _, taken := range []*trace.ExponentialHistogram{ // of Row.Exponential
		{Scale: 3, Positive: trace.ExponentialBuckets{Offset: 7, Counts: []uint64{2, 1}}},
		{Scale: 3, Positive: trace.ExponentialBuckets{Offset: 9, Counts: []uint64{4}}},
	} {
		sum.Add(taken)
	}
	fmt.Println(sum.Scale, sum.Positive.Offset, sum.Positive.Counts)
	// Output: 3 7 [2 1 4]
}
