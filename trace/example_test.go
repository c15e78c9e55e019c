// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Print the queries of a PostgreSQL server as they start, until interrupted.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Filter: `str(arg0, 6) == "SELECT"`,
			Events: &trace.EventOptions{Captures: []trace.Capture{{Arg: "arg0", Max: 1000}}},
		}, elfnote.Exact("postgresql", "query__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for event, err := range s.Events(ctx) {
		var lost trace.LostError
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

// The queries of a PostgreSQL server, with the names of their arguments.
func ExampleSession_Events() {
	target := usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"}
	session, err := trace.Open(target, &trace.SessionOptions{
		Definitions: providers.Builtin(), // what arguments are called, and which are texts
		Events: &trace.EventOptions{
			Captures: []trace.Capture{{Max: 500}}, // up to 500 bytes of each text
		},
	}, elfnote.MustParsePattern("postgresql:query__*"))
	if err != nil {
		log.Fatal(err)
	}
	defer session.Close()
	for event, err := range session.Events(context.Background()) {
		if err != nil {
			log.Print(err) // events were lost; the iteration goes on
			continue
		}
		fmt.Println(event)
	}
}

// Which of two modules does a Python program import?
func ExampleOpen() {
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Filter: `arg0 == "colorsys" || arg0 == "antigravity"`,
		Events: &trace.EventOptions{
			Captures: []trace.Capture{{Arg: "arg0"}}, // the name of the module
		},
	}, elfnote.Exact("python", "import__find__load__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-c", "import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	if err := s.Detach(); err != nil { // the iteration ends when all events have come
		log.Print(err)
	}
	for event, err := range s.Events(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Probe, event.Args[0])
	}
	// It prints:
	// python:import__find__load__start "colorsys"
}

// Why are some sites of a file not watched?
func ExampleAttachment_Skipped() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	a, err := s.Attach(usdt.Target{Path: "/usr/bin/python3"}, nil)
	if err != nil {
		log.Fatal(err)
	}
	skipped, count := a.Skipped()
	for _, site := range skipped {
		fmt.Println(site)
	}
	fmt.Printf("%d sites are watched, %d are skipped\n", len(a.Sites()), count)
	// It prints:
	// 8 sites are watched, 0 are skipped
}

// A configuration is checked before anything is watched, without privileges.
func ExampleSessionOptions_Validate() {
	opts := &trace.SessionOptions{Events: &trace.EventOptions{StackDepth: 1000}}
	fmt.Println(opts.Validate())
	// Output: option StackDepth: 1000 is not between 0 and 127
}

// The names of the classes that a Java virtual machine loads. They do not end
// in a zero: the second argument is their length.
func ExampleCapture() {
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/jvm/default-java/lib/server/libjvm.so"},
		&trace.SessionOptions{
			Events: &trace.EventOptions{
				Captures: []trace.Capture{{Arg: "arg0", Length: "arg1", Max: 200}}},
		}, elfnote.Exact("hotspot", "class__loaded"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for event, err := range s.Events(context.Background()) {
		if err != nil {
			log.Print(err)
			continue
		}
		switch name, complete := event.Args[0].Data(); {
		case name == nil:
			fmt.Println("a class whose name could not be read")
		case !complete:
			fmt.Printf("%s...\n", name)
		default:
			fmt.Printf("%s\n", name)
		}
	}
}

// How often does a Python program try to import each module? Modules whose
// names begin with an underscore do not count.
func ExampleNewAggregator() {
	imports := trace.NewAggregator(trace.Aggregation{
		By:      []string{"str(arg0, 40)"},
		Where:   `str(arg0, 1) != "_"`,
		MaxKeys: 10_000,
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Aggregators: []*trace.Aggregator{imports},
	}, elfnote.Exact("python", "import__find__load__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-I", "-S", "-c",
		"import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	snapshot, err := imports.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range snapshot.Rows {
		fmt.Println(row.Keys[0], row.Count)
	}
	fmt.Println(snapshot.Other.Count, "imports of further modules")
	// It prints, among other modules:
	// colorsys 1
	// 0 imports of further modules
}

// How long does a Python program take to import a module?
func ExampleLatency() {
	times := trace.NewAggregator(trace.Aggregation{
		Latency: &trace.Latency{
			Pair: elfnote.MustParsePairPattern("python:import__find__load"), // __start and __done
		},
		Where: `arg0 == "colorsys"`,
		Sum:   true, Max: true,
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Aggregators: []*trace.Aggregator{times},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-c", "import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	snapshot, err := times.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range snapshot.Rows {
		fmt.Printf("%d imports, %v on average, %v at most\n", row.Count,
			time.Duration(row.Average()), time.Duration(row.Max.Int()))
	}
	// It prints, with other times:
	// 1 imports, 214.709µs on average, 214.709µs at most
}

// Which imports of a Python program take longer than a microsecond, each with
// those inside it?
func ExampleLatency_spans() {
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Filter: "duration > 1us && str(start.arg0, 6) == \"colors\"",
		Events: &trace.EventOptions{
			Spans:    []trace.Latency{{Pair: elfnote.MustParsePairPattern("python:import__find__load")}},
			Captures: []trace.Capture{{Arg: "arg0"}}, // the name of the module
		},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-c", "import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	if err := s.Detach(); err != nil { // the iteration ends when all events have come
		log.Print(err)
	}
	for event, err := range s.Events(context.Background()) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(event.Start.Args[0], event.Duration)
	}
	// It prints, with another time:
	// "colorsys" 214.709µs
}

// How long the queries of a PostgreSQL server take, every second.
func ExampleAggregator_Take() {
	latency := trace.NewAggregator(trace.Aggregation{
		Latency: &trace.Latency{
			Pair: elfnote.MustParsePairPattern("postgresql:query"), // query__start and query__done
		},
		Histogram: &trace.Histogram{},
		Max:       true,
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregators: []*trace.Aggregator{latency},
		})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for range time.Tick(time.Second) {
		snapshot, err := latency.Take()
		if err != nil {
			log.Fatal(err)
		}
		for _, row := range snapshot.Rows {
			fmt.Printf("%d queries, %v on average, half of them within %v, 99 %% within %v, the longest %v\n", row.Count,
				time.Duration(row.Average()), time.Duration(row.Quantile(0.5)),
				time.Duration(row.Quantile(0.99)),
				time.Duration(row.Max.Int()))
			for _, bucket := range row.Histogram(1) {
				fmt.Printf("%12v to %12v  %d\n", time.Duration(bucket.Low.Int()),
					time.Duration(bucket.High.Int()), bucket.Count)
			}
		}
	}
}

// A table of the ten most frequent statements of a PostgreSQL server, whatever
// numbers are in them, with all others in one row.
func ExampleSnapshot_Top() {
	digits := regexp.MustCompile(`[0-9]+`) // a tokenizer of SQL does better
	statements := trace.NewAggregator(trace.Aggregation{
		By:        []string{"str(arg0, 200)"},
		Normalize: func(text string) string { return digits.ReplaceAllString(text, "?") },
	})
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregators: []*trace.Aggregator{statements},
		}, elfnote.Exact("postgresql", "query__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	time.Sleep(10 * time.Second)
	all, err := statements.Snapshot()
	if err != nil {
		log.Fatal(err)
	}
	top := all.Top(10)
	for _, row := range top.Rows {
		fmt.Println(row.Count, row.Keys[0])
	}
	fmt.Println(top.Other.Count, "(other)")
}

// Print the sites in one process before they are watched, and give their events
// a cookie.
func ExampleSession_Attach_selection() {
	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	sel, err := usdt.Select(usdt.Target{Path: "/usr/bin/python3", PID: 1234},
		elfnote.MustParsePattern("python:function__*"), elfnote.MustParsePattern("python:gc__*"))
	if err != nil {
		log.Fatal(err)
	}
	defer sel.Close()
	for _, site := range sel.Sites() {
		fmt.Println(site.Provider, site.Name)
	}
	if _, err := s.Attach(usdt.Target{Selection: sel}, &usdt.AttachOptions{Cookie: 1234}); err != nil {
		log.Fatal(err)
	}
}
