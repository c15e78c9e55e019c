// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
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
		Definitions: trace.BuiltinDefinitions(), // what arguments are called, and which are texts
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

// The definitions of an application of one's own beside those that are known.
func ExampleDefinitions_Parse() {
	definitions := trace.BuiltinDefinitions()
	err := definitions.Parse("shop.d", []byte(`
		provider shop {
			probe sold(const char *fruit, int number);
			call sale(const char *fruit = arg0) {
				asked .. sold;
			};
		};`))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(definitions.Patterns("shop:sale")) // the probes that a watch attaches for it
	// Output: [shop:asked shop:sold] <nil>
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
func ExampleAggregation() {
	imports := &trace.Aggregation{
		By:      []string{"str(arg0, 40)"},
		Where:   `str(arg0, 1) != "_"`,
		MaxKeys: 10_000,
	}
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Aggregations: []*trace.Aggregation{imports},
	}, elfnote.Exact("python", "import__find__load__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-I", "-S", "-c",
		"import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	snapshot, err := s.Snapshot(imports)
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
	times := &trace.Aggregation{
		Latency: &trace.Latency{
			Pair: "python:import__find__load", // __start and __done
		},
		Where: `arg0 == "colorsys"`,
		Sum:   true, Max: true,
	}
	s, err := trace.Open(usdt.Target{Path: "/usr/bin/python3"}, &trace.SessionOptions{
		Aggregations: []*trace.Aggregation{times},
	})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	if err := exec.Command("/usr/bin/python3", "-c", "import colorsys").Run(); err != nil {
		log.Fatal(err)
	}
	snapshot, err := s.Snapshot(times)
	if err != nil {
		log.Fatal(err)
	}
	for _, row := range snapshot.Rows {
		fmt.Printf("%d imports, %v on average, %v at most\n", row.Count,
			time.Duration(row.Sum.Float()/float64(row.Count)), time.Duration(row.Max.Int()))
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
			Spans:    []trace.Latency{{Pair: "python:import__find__load"}},
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
func ExampleSession_Take() {
	latency := &trace.Aggregation{
		Latency: &trace.Latency{
			Pair: "postgresql:query", // query__start and query__done
		},
		Histogram: &trace.Histogram{},
		Max:       true,
	}
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregations: []*trace.Aggregation{latency},
		})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	for range time.Tick(time.Second) {
		snapshots, err := s.Take(latency)
		if err != nil {
			log.Fatal(err)
		}
		for _, row := range snapshots[0].Rows {
			fmt.Printf("%d queries, %v on average, half of them within %v, 99 %% within %v, the longest %v\n", row.Count,
				time.Duration(row.Sum.Float()/float64(row.Count)), time.Duration(row.Quantile(0.5)),
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
	statements := &trace.Aggregation{
		By:        []string{"str(arg0, 200)"},
		Normalize: func(_, text string) string { return digits.ReplaceAllString(text, "?") },
	}
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregations: []*trace.Aggregation{statements},
		}, elfnote.Exact("postgresql", "query__start"))
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	time.Sleep(10 * time.Second)
	all, err := s.Snapshot(statements)
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
			Spans: []trace.Latency{{Pair: "postgresql:query"}},
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
		switch {
		case errors.As(err, &lost):
			log.Print(uint64(lost), " events found no room")
		case err != nil:
			log.Fatal(err)
		default:
			pc := len(event.Registers) - 1
			fmt.Printf("at %#x, general registers %#x\n", event.Registers[pc], event.Registers[:pc])
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
	lengths := &trace.Aggregation{
		Probes:    []elfnote.Pattern{elfnote.Exact("postgresql", "lwlock__wait__start")},
		Value:     "arg1",
		By:        []string{"probe", "site"},
		Histogram: trace.Exponential(1, 0), // 1, 2 to 3, 4 to 7, ...
	}
	s, err := trace.Open(usdt.Target{Path: "/usr/lib/postgresql/15/bin/postgres"},
		&trace.SessionOptions{
			Aggregations: []*trace.Aggregation{lengths},
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
	snapshot, err := s.Snapshot(lengths)
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
	w, err := watch.New(opts, nil, s.Part(elfnote.MustParsePattern("python:gc__*")))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), 0); err != nil {
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
	statements := &trace.Latency{Pair: "postgresql:query"}
	var aggregators []*trace.Aggregation
	for _, h := range []*trace.Histogram{
		trace.Exponential(0, uint64(time.Second)),
		trace.Limits(int64(time.Millisecond), int64(time.Second)),
	} {
		aggregators = append(aggregators,
			&trace.Aggregation{Latency: statements, Histogram: h})
	}
	opts := &trace.SessionOptions{Aggregations: aggregators}
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

// The sum of all that was taken since the start, as the exponential histograms
// of OpenTelemetry and Prometheus have it.
func ExampleBucket() {
	var taken [][]trace.Bucket // Row.Histogram(0) of the rows of each Session.Take
	var zero uint64
	positive, negative := make(map[int]uint64), make(map[int]uint64)
	for _, b := range slices.Concat(taken...) {
		switch {
		case b.High.Float() > 0:
			positive[b.Index] += b.Count
		case b.High.Float() < 0:
			negative[b.Index] += b.Count
		default:
			zero += b.Count
		}
	}
	fmt.Println(zero, len(positive), len(negative))
	// Output: 0 0 0
}

// The garbage collections of every Python interpreter, in containers too,
// whether it runs already or starts later.
func ExampleSession_Part() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()

	s, err := trace.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	w, err := watch.New(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			log.Printf("watching %d sites of %q", len(a.Sites()), a.Path())
		}
		for _, err := range changes.Errors {
			if errors.Is(err, proc.ErrAccess) {
				continue // of the processes of others
			}
			log.Printf("%q", err)
		}
	}, s.Part(elfnote.Exact("python", "gc__start")))
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
func ExampleSession_Part_several() {
	queries, err := trace.New(&trace.SessionOptions{
		Filter: "duration > 1s",
		Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: "postgresql:query"}}},
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
	slow, collected := queries.Part(elfnote.MustParsePattern("postgresql:query__*")),
		collections.Part(elfnote.Exact("python", "gc__done"))
	slow.Name, collected.Name = "queries", "collections"
	w, err := watch.New(nil, func(changes *watch.Changes[*trace.Attachment]) {
		for _, a := range changes.Attached {
			log.Printf("watching %q for queries: %v", a.Path(), a.Session() == queries)
		}
		for _, err := range changes.Errors {
			log.Printf("%q", err) // it begins with the name, too
		}
	}, slow, collected)
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
	w, err := watch.New(nil, nil, s.Part(elfnote.MustParsePattern("python:*")))
	if err != nil {
		log.Fatal(err)
	}
	defer w.Close()
	if err := w.Sync(context.Background(), os.Getppid()); err != nil {
		log.Fatal(err)
	}
}

// Examples that end print the output that their comments show.
func TestExamples(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.TakeTurn(t, testprog.SystemSoftware)
	const python = "/usr/bin/python3"
	file, err := elfnote.Open(python)
	if err != nil {
		testneeds.Missing(t, "needs %s with probes (Debian: python3): %v", python, err)
	}
	listing, err := defs.List(file, elfnote.Exact("python", "import__find__load__start"))
	file.Close()
	qt.Assert(t, qt.IsNil(err))
	if len(listing.Probes) == 0 {
		testneeds.Missing(t, "needs %s with probes (Debian: python3)", python)
	}
	for _, test := range []struct {
		name    string
		example func()
		want    string
	}{
		{"Open", ExampleOpen, `(python:import__find__load__start "colorsys"\n)+`},
		{"Attachment_Skipped", ExampleAttachment_Skipped, `\d+ sites are watched, 0 are skipped\n`},
		{"Aggregation", ExampleAggregation,
			`([\w.]+ \d+\n)*colorsys 1\n([\w.]+ \d+\n)*0 imports of further modules\n`},
		{"Latency", ExampleLatency, `\d+ imports, [\d.]+.?s on average, [\d.]+.?s at most\n`},
		{"Latency_spans", ExampleLatency_spans, `("colorsys" [\d.]+.?s\n)+`},
	} {
		t.Run(test.name, func(t *testing.T) {
			testprog.LeakCheck(t)
			got := printed(t, test.example)
			qt.Check(t, qt.IsTrue(regexp.MustCompile("^"+test.want+"$").MatchString(got)),
				qt.Commentf("%s", got))
		})
	}
}

func printed(t *testing.T, f func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	stdout := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = stdout }()
	text := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(r)
		text <- all
	}()
	f()
	w.Close()
	return string(<-text)
}
