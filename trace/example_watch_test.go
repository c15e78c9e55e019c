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
	"github.com/gousdt/gousdt/watch"
)

// The garbage collections of every Python interpreter, in containers too,
// whether it runs already or starts later.
func ExampleWatchSessions() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := trace.WatchSessions(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			log.Printf("watching %d sites of %q", len(a.Sites()), a.Path())
		}
		for _, err := range changes.Errors {
			if errors.Is(err, proc.ErrAccess) {
				continue // of the processes of others
			}
			log.Printf("%q", err)
		}
	}, trace.WatchSession{Session: s,
		Patterns: []elfnote.Pattern{elfnote.Exact("python", "gc__start")}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	go func() {
		if err := w.Run(ctx, 10*time.Second); ctx.Err() == nil {
			log.Fatal(err)
		}
	}()

	for event, err := range s.Events(ctx) {
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println(event.Time.Format(time.TimeOnly), event.PID, event.Site.File, "generation",
			event.Args[0])
	}
}

// Long queries of PostgreSQL one by one, and every garbage collection of
// Python. The processes are scanned once for both.
func ExampleWatchSessions_several() {
	queries, err := trace.New(&trace.SessionOptions{
		Filter: "duration > 1s",
		Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("postgresql:query")}}},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer queries.Close()
	collections, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer collections.Close()
	names := map[*trace.Session]string{queries: "queries", collections: "collections"}
	w, err := trace.WatchSessions(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			log.Printf("%s: watching %q", names[a.Session()], a.Path())
		}
		for _, err := range changes.Errors {
			log.Printf("%q", err) // it begins with the name, too
		}
	}, trace.WatchSession{
		Session: queries, Name: names[queries],
		Patterns: elfnote.MustParsePairPattern("postgresql:query").Patterns(),
	}, trace.WatchSession{
		Session: collections, Name: names[collections],
		Patterns: []elfnote.Pattern{elfnote.Exact("python", "gc__done")},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	go func() {
		log.Fatal(w.Run(context.Background(), 10*time.Second))
	}()
	go func() {
		for event, err := range queries.Events(context.Background()) {
			if err != nil {
				log.Print(err)
				continue
			}
			fmt.Println(event.PID, event.Duration)
		}
	}()
	for event, err := range collections.Events(context.Background()) {
		if err != nil {
			log.Print(err)
			continue
		}
		fmt.Println(event.PID, event.Args[0])
	}
}

// A process that is about to be of interest is scanned at once, instead of when
// the kernel's report of it is read.
func ExampleWatch_Sync() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := trace.WatchSessions(nil, nil, trace.WatchSession{Session: s,
		Patterns: []elfnote.Pattern{elfnote.MustParsePattern("python:*")}})
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), os.Getppid()); err != nil {
		log.Fatal(err)
	}
}
