// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
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
		latency := &trace.Latency{
			Pair: "gousdt_test:three..gousdt_test:twelve"}
		times := &trace.Aggregation{Latency: latency, Sum: true, Min: true,
			Max: true}
		distribution := &trace.Aggregation{
			Latency: latency, Histogram: &trace.Histogram{}, By: []string{"comm", "arg0"},
		}
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
	pair := "inlined..specs"
	var all []*trace.Aggregation
	for _, l := range []*trace.Latency{
		{Pair: pair, By: "arg0"},
		{Pair: pair, By: "arg0=arg0 & 0xff"},
		{Pair: pair},
	} {
		all = append(all, &trace.Aggregation{Latency: l, By: []string{"arg0"}})
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
	a := &trace.Aggregation{
		Latency: &trace.Latency{Pair: "inlined..specs", By: "arg0"},
		By:      []string{"arg0"}, Where: "start.arg0 != 2 && duration > 0",
	}
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
		a := &trace.Aggregation{Latency: &trace.Latency{
			Pair: pair}}
		_, err := trace.Open(usdt.Target{Path: path}, aggregating(a),
			elfnote.MustParsePattern("gousdt_test:t[hw]*e"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
	// They may be attached one after the other.
	s := newSession(t, aggregating(&trace.Aggregation{Latency: &trace.Latency{
		Pair: "gousdt_test:three..gousdt_test:twelve",
	}}))
	attach(t, s, usdt.Target{Path: path}, "three", nil)
	attach(t, s, usdt.Target{Path: path}, "twelve", nil)
}

const statementDefinition = `
provider gousdt_calls {
	probe simple_goes(const char *text);
	call statement(const char *query = global.gousdt_statement) {
		simple_goes .. simple_over;
		execute_goes .. execute_over;
		failed abort if global.gousdt_statement == 0;
		failed state;
		attempt state if global.gousdt_statement != 0;
	};
};`

// A call that several probes start and end counts once.
func TestCallsOfSeveralProbes(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("statement.d", []byte(statementDefinition))))
	pair := "gousdt_calls:statement"
	want := []string{"simple", "extended", "change", "simple change", "error failed",
		"extended error failed", "extended", "parse error failed", "error in a part failed",
		"simple", "rollback", "same frame", "change", "same frame"}
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		for _, by := range []string{"", "pid & 0"} {
			latency := trace.Latency{Pair: pair, By: by}
			times := &trace.Aggregation{Latency: &latency}
			changes := &trace.Aggregation{Latency: &latency,
				Where: `query == "change"`}
			failed := &trace.Aggregation{Latency: &latency, Where: "failed"}
			others := &trace.Aggregation{Latency: &latency, Where: "!failed"}
			s := newSession(t, &trace.SessionOptions{Mode: mode, Definitions: definitions,
				Aggregations: []*trace.Aggregation{times, changes, failed, others},
				Events: &trace.EventOptions{
					Captures: []trace.Capture{{Max: 64}},
					Spans:    []trace.Latency{latency},
				}})
			c := startCaller(t, copyOf(t, "calls"))
			_, err := s.Attach(usdt.Target{Path: c.path}, nil, patternsOf(t, definitions, pair)...)
			qt.Assert(t, qt.IsNil(err))
			for range 2 {
				c.call("statements")
				var got []string
				for _, e := range next(t, s, len(want)) {
					text, _ := e.Start.Args[0].Data()
					got = append(got, string(text))
					if e.Failed {
						got[len(got)-1] += " failed"
					}
					pair := e.Pair()
					qt.Check(t, qt.Equals(pair, "gousdt_calls:statement"))
					qt.Check(t, qt.HasLen(e.Start.Args, 1))
					qt.Check(t, qt.HasLen(e.Args, 0))
				}
				qt.Check(t, qt.DeepEquals(got, want))
			}
			open, err := s.OpenCalls(0)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.HasLen(open, 0))
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(losses, trace.Losses{}))
			qt.Check(t, qt.Equals(snapshot(t, times).Rows[0].Count, uint64(2*len(want))))
			qt.Check(t, qt.Equals(snapshot(t, changes).Rows[0].Count, 4))
			qt.Check(t, qt.Equals(snapshot(t, failed).Rows[0].Count, 2*4))
			qt.Check(t, qt.Equals(snapshot(t, others).Rows[0].Count, uint64(2*(len(want)-4))))
			silent(t, s)
		}
	})
}

// A file without the probes of a call has no such call, and neither has a
// session without its definition.
func TestCallsThatAreNotThere(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("statement.d", []byte(statementDefinition))))
	spans := []trace.Latency{{Pair: "gousdt_calls:statement"}}
	_, err := trace.Open(usdt.Target{Path: copyOf(t, "target-pie")},
		&trace.SessionOptions{Definitions: definitions, Events: &trace.EventOptions{Spans: spans}})
	qt.Check(t, qt.ErrorMatches(err, ".*there is no pair of probes gousdt_calls:statement .*"))
	_, err = trace.Open(usdt.Target{Path: copyOf(t, "calls")}, &trace.SessionOptions{
		Events: &trace.EventOptions{Spans: spans}})
	qt.Check(t, qt.ErrorMatches(err, ".*there is no pair of probes gousdt_calls:statement .*"))

	malformed := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(malformed.Parse("statement.d", []byte(
		"provider gousdt_calls { call statement() { a .. b; failed c if duration > 1ns; }; };"))))
	_, err = trace.New(&trace.SessionOptions{Definitions: malformed,
		Events: &trace.EventOptions{Spans: spans}})
	qt.Check(t, qt.ErrorMatches(err, `.*the definition of the call gousdt_calls:statement: `+
		`whether a probe counts cannot depend on the call's start or duration`))
}

// A name that only another probe has is refused: by the definitions alone if
// these say so, else by the starts of the file.
func TestNamesThatCallsLack(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("statement.d", []byte(statementDefinition+
		"provider elsewhere { probe other(int relation, const char *name); };"+
		"provider gousdt_test { probe three(int first); };"))))
	call := &trace.Latency{Pair: "gousdt_calls:statement"}
	for _, test := range []struct {
		field       string
		aggregation trace.Aggregation
	}{
		{`By\[0\]`, trace.Aggregation{Latency: call, By: []string{"start.relation"}}},
		{`By\[0\]`, trace.Aggregation{Latency: call, By: []string{"str(start.name, 8)"}}},
		{`By\[0\]`, trace.Aggregation{Latency: call, By: []string{"name"}}},
		{"Value", trace.Aggregation{Latency: call, Value: "start.relation", Sum: true}},
		{"Value", trace.Aggregation{Latency: call, Value: "relation", Sum: true}},
		{"Where", trace.Aggregation{Latency: call, Where: "duration > 1ns || start.relation == 3"}},
		{"Where", trace.Aggregation{Latency: call, Where: "relation == 3"}},
		{"Where", trace.Aggregation{Where: "relation == 3",
			Probes: []elfnote.Pattern{elfnote.Exact("gousdt_calls", "statement")}}},
	} {
		opts := &trace.SessionOptions{Definitions: definitions,
			Aggregations: []*trace.Aggregation{&test.aggregation}}
		qt.Check(t, qt.ErrorMatches(opts.Validate(), `option Aggregations\[0\]: `+test.field+
			`: .* gousdt_calls:statement has no (relation|name).*`))
	}
	for field, opts := range map[string]*trace.SessionOptions{
		"Filter": {Filter: "start.relation == 3", Events: &trace.EventOptions{}},
		`Captures\[0\]: Arg`: {Events: &trace.EventOptions{
			Captures: []trace.Capture{{Arg: "name"}}}},
	} {
		opts.Definitions, opts.Events.Spans = definitions, []trace.Latency{*call}
		qt.Check(t, qt.ErrorMatches(opts.Validate(), "option "+field+
			": .* gousdt_calls:statement has no (relation|name).*"))
	}

	pair := &trace.Latency{Pair: "gousdt_test:three..gousdt_test:specs"}
	for _, aggregation := range []trace.Aggregation{
		{Latency: pair, By: []string{"start.arg9"}},
		{Latency: pair, Value: "start.arg9", Sum: true},
		{Latency: pair, Where: "!(start.arg9 == 1)"},
	} {
		s := newSession(t, aggregating(&aggregation))
		_, err := s.Attach(usdt.Target{Path: copyOf(t, "target-pie")}, nil, patternsOf(t, nil, pair.Pair)...)
		qt.Check(t, qt.ErrorMatches(err, ".*: gousdt_test:three has no arg9"))
	}
}

// A helper is attached for the probe that needs it, and counts for nothing. It
// is not, where the file lacks it or the symbol, or it is attached anyway.
func TestHelpersAreAttached(t *testing.T) {
	path := copyOf(t, "target-pie")
	process := startFile(t, path)
	for _, test := range []struct {
		helper, patterns string
		attached         bool
		events           int
	}{
		{"gousdt_test:three gousdt_test:inlined", "gousdt_test:three", true, 1},
		{"gousdt_test:three gousdt_test:inlined with main", "gousdt_test:three", true, 1},
		{"gousdt_test:three gousdt_test:inlined with no_such_symbol", "gousdt_test:three", false, 1},
		{"gousdt_test:three gousdt_test:nothing", "gousdt_test:three", false, 1},
		{"gousdt_test:three gousdt_test:inlined", "gousdt_test:three,gousdt_test:inlined", false, 6},
	} {
		definitions := &trace.Definitions{}
		qt.Assert(t, qt.IsNil(definitions.Parse("h.d", []byte("#pragma gousdt helper "+test.helper))))
		s := newSession(t, &trace.SessionOptions{Definitions: definitions})
		var patterns []elfnote.Pattern
		for p := range strings.SplitSeq(test.patterns, ",") {
			patterns = append(patterns, elfnote.MustParsePattern(p))
		}
		a, err := s.Attach(usdt.Target{Path: path}, nil, patterns...)
		qt.Assert(t, qt.IsNil(err))
		stats, err := s.Stats()
		qt.Assert(t, qt.IsNil(err))
		attached := false
		for p := range stats.Programs {
			attached = attached || p.Name == "usdt_helper"
		}
		qt.Check(t, qt.Equals(attached, test.attached), qt.Commentf("%v", test))
		qt.Check(t, qt.Equals(slices.Contains(a.Helpers(), "gousdt_test:inlined"), test.attached))
		qt.Check(t, qt.HasLen(a.Sites(), test.events))
		process.Fire("three", 1)
		process.Fire("inlined", 1)
		next(t, s, test.events)
		silent(t, s)
		qt.Assert(t, qt.IsNil(a.Close()))
	}
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("h.d",
		[]byte("#pragma gousdt helper gousdt_test:three gousdt_test:specs"))))
	s := newSession(t, &trace.SessionOptions{Definitions: definitions})
	_, err := s.Attach(usdt.Target{Path: path}, nil, elfnote.Exact("gousdt_test", "three"))
	qt.Check(t, qt.ErrorMatches(err, "attaching gousdt_test:specs, without which gousdt_test:three "+
		"does not fire: gousdt_test:specs: 300 sites are more than 16"))
}

// Python 3.11 passes the start of a call only while another probe is attached:
// a session without definitions attaches that one, too.
func TestHelpersAreAttachedWithoutDefinitions(t *testing.T) {
	python := testprog.StartPython(t, testprog.CallsOfPython)
	python.Stop()
	script := filepath.Join(t.TempDir(), "plain.py")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte(`
import sys
def traced(): return 1
for line in sys.stdin:
    traced()
    print("ok", flush=True)
`), 0o644)))
	process := testprog.StartCommand(t, exec.Command(python.File, "-I", "-S", script))
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{{Pair: "python:function"}}}})
	attach(t, s, usdt.Target{Path: python.File, PID: process.PID}, "python:function__*", nil)
	for range 10 {
		process.Do("call")
	}
	next(t, s, 10)
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(losses, trace.Losses{}))
}

// Starts and ends that do not belong together as they are matched are
// recognised by an argument and by the threads. Matched by the
// argument all are right, though the ends have it in fewer bytes.
func TestMismatchesAreSeen(t *testing.T) {
	pair := "gousdt_calls:loop"
	for _, test := range []struct {
		scenario, mismatch, match string
		ended                     uint64 // by the argument
	}{
		{"interleaved", "gousdt_calls:loop: start and end differ in arg0 in 40 of 40 calls", "arg0", 40},
		{"swapped", "gousdt_calls:loop: start and end differ in arg0 in 16 of 80 calls", "arg0", 80},
		{"chained", "", "", 0},
		{"elsewhere", "about as many starts have no end as ends have no start: " +
			"calls may end in another process than they start in, where nothing matches them, " +
			"or on another thread", "arg0", 40},
	} {
		times := &trace.Aggregation{Latency: &trace.Latency{Pair: pair}}
		matched := &trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "arg0"}}
		for _, asked := range []*trace.Aggregation{times, matched} {
			s := newSession(t, aggregating(asked))
			path := copyOf(t, "calls")
			attach(t, s, usdt.Target{Path: path}, "gousdt_calls:loop*", nil)
			startCaller(t, path).call(test.scenario)
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			if asked == times {
				qt.Check(t, qt.Equals(losses.Mismatch, test.mismatch))
				qt.Check(t, qt.Equals(losses.Match, test.match))
				continue
			}
			qt.Check(t, qt.Equals(losses.Mismatch, ""))
			var ended uint64
			for _, row := range snapshot(t, asked).Rows {
				ended += row.Count
			}
			qt.Check(t, qt.Equals(ended, test.ended), qt.Commentf("%s", test.scenario))
		}
	}
}

// If no call is measured, a few that end in another process are enough.
func TestCallsThatEndInOtherProcessesAreSeen(t *testing.T) {
	s := newSession(t, aggregating(&trace.Aggregation{Latency: &trace.Latency{Pair: "gousdt_calls:left"}}))
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left*", nil)
	for i := range 10 {
		cmd := exec.Command(path, []string{"leave", "end"}[i%2])
		cmd.Stdin = strings.NewReader("\n")
		qt.Assert(t, qt.IsNil(cmd.Run()))
	}
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.StringContains(losses.Mismatch, "calls may end in another process"))
}

// Nothing tells when a thread goes on on the stack of a coroutine: the own time
// of the call that started it, and of those inside, is not known.
func TestOwnTimesOnOtherStacksAreNotKnown(t *testing.T) {
	times := &trace.Aggregation{Value: "self", By: []string{"start.arg0"},
		Latency: &trace.Latency{Pair: "gousdt_calls:turn"}}
	s := newSession(t, aggregating(times))
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:turn*", nil)
	startCaller(t, path).call("coroutine")
	var known []string
	for _, row := range snapshot(t, times).Rows {
		known = append(known, row.Keys[0].String())
	}
	slices.Sort(known)
	qt.Check(t, qt.DeepEquals(known, []string{"0", "4"}))
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(losses, trace.Losses{SelfUnknown: 3}))
}

// So are calls that nothing matches but the thread, as a definition says.
func TestCallsThatEndElsewhereAreSeen(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("loop.d", []byte(
		"provider gousdt_calls { call read() { alone; loop__start .. loop__done; }; };"))))
	for scenario, want := range map[string]string{
		"interleaved": "",
		"elsewhere": "about as many starts have no end as ends have no start: " +
			"calls may end in another process than they start in, where nothing matches them, " +
			"or on another thread",
	} {
		opts := aggregating(&trace.Aggregation{Latency: &trace.Latency{
			Pair: "gousdt_calls:read"}})
		opts.Definitions = definitions
		s := newSession(t, opts)
		path := copyOf(t, "calls")
		attach(t, s, usdt.Target{Path: path}, "gousdt_calls:loop*", nil)
		startCaller(t, path).call(scenario)
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses.Mismatch, want), qt.Commentf("%s: %+v", scenario, losses))
		qt.Check(t, qt.Equals(losses.Match, ""))
	}
}
