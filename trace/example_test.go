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
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Print the queries of a PostgreSQL server as they start, until interrupted.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}, &trace.SessionOptions{
		Captures: []trace.Capture{{Arg: "arg0", Max: 1000}},
		Filter:   `str(arg0, 6) == "SELECT"`,
	}, elfnote.Exact("postgresql", "query__start"))
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
func ExampleAggregator_Snapshot() {
	latency := trace.NewAggregator(trace.Aggregation{
		Latency: &trace.Latency{
			Start: elfnote.Exact("postgresql", "query__start"),
			Done:  elfnote.Exact("postgresql", "query__done"),
		},
		Histogram: &trace.Histogram{},
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}, &trace.SessionOptions{
		Aggregators: []*trace.Aggregator{latency},
		NoEvents:    true,
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	earlier := &trace.Snapshot{}
	for range time.Tick(time.Second) {
		now, err := latency.Snapshot()
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

// Several patterns in one attachment, so that they share one link, in one
// process.
func ExampleSession_AttachSelection() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	sel, err := usdt.Select(usdt.Target{Path: "python3", PID: 1234}, nil,
		elfnote.MustParsePattern("python:function__*"), elfnote.MustParsePattern("python:gc__*"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	if _, err := s.AttachSelection(sel, &trace.AttachOptions{Cookie: 1234}); err != nil {
		log.Fatal(err)
	}
}

// The garbage collections of every Python interpreter, in containers too,
// whether it runs already or starts later.
func ExampleSession_Watch() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := s.Watch(&trace.WatchOptions{
		Changed: func(changes *trace.WatchChanges) {
			for _, a := range changes.Attached {
				log.Printf("watching %d sites of %q", len(a.Sites()), a)
			}
			for _, err := range changes.Errors {
				if errors.Is(err, proc.ErrAccess) {
					continue // of the processes of others
				}
				log.Printf("%q", err)
			}
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	go func() {
		if err := w.Run(ctx, 10*time.Second); err != nil {
			log.Fatal(err)
		}
	}()

	for event, err := range s.Events(ctx) {
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println(event.Time.Format(time.TimeOnly), event.PID, event.Site.File, "generation", event.Args[0])
	}
}
