// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Print the queries of a PostgreSQL server as they start, until interrupted.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}, "postgresql:query__start", &trace.Options{
		Captures: []trace.Capture{{Arg: 0, Max: 1000}},
		Filter:   `str(arg0, 6) == "SELECT"`,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for event, err := range s.Events(ctx) {
		var lost *trace.LostError
		switch {
		case errors.As(err, &lost):
			log.Print(lost)
		case err != nil:
			log.Fatal(err)
		default:
			fmt.Println(event.Time.Format(time.TimeOnly), event.PID, event.Args[0])
		}
	}
}

// How long queries take, every second.
func ExampleSession_Snapshot() {
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}, "postgresql:query__*", &trace.Options{
		Aggregations: []trace.Aggregation{{
			Latency:   &trace.Latency{Start: "postgresql:query__start", Done: "postgresql:query__done"},
			Histogram: &trace.Histogram{},
		}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	earlier := &trace.Snapshot{}
	for range time.Tick(time.Second) {
		now, err := s.Snapshot(0)
		if err != nil {
			log.Fatal(err)
		}
		for _, row := range now.Since(earlier).Rows {
			fmt.Printf("%d queries, %v on average\n", row.Count, time.Duration(row.Average()))
			for _, bucket := range row.Buckets {
				fmt.Printf("%12v to %12v  %d\n", time.Duration(bucket.Low.Int()), time.Duration(bucket.High.Int()), bucket.Count)
			}
		}
		earlier = now
	}
}

// Several patterns in one attachment, so that they share one link, in one process.
func ExampleSession_AttachSelection() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	var patterns []elfnote.Pattern
	for _, text := range []string{"python:function__*", "python:gc__*"} {
		p, err := elfnote.ParsePattern(text)
		if err != nil {
			log.Fatal(err)
		}
		patterns = append(patterns, p)
	}
	sel, err := usdt.SelectMatching(usdt.Target{Path: "python3", PID: 1234}, func(provider, name string) bool {
		for _, p := range patterns {
			if p.Match(provider, name) {
				return true
			}
		}
		return false
	})
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	if _, err := s.AttachSelection(sel, &trace.AttachOptions{Cookie: 1234}); err != nil {
		log.Fatal(err)
	}
}
