// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// A call is open from its start to its end, with what its start has.
func TestOpenCalls(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		s := newSession(t, &trace.SessionOptions{Mode: mode,
			Events: &trace.EventOptions{
				Spans: everyCall, StackDepth: 10,
				StartStacks: true, Captures: []trace.Capture{{Arg: "arg1"},
					{Arg: "global.gousdt_statement", Max: 6}},
			}})
		path := copyOf(t, "calls")
		attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
		before := time.Now()
		c := startCaller(t, path, "slowly")
		c.call("")
		started := time.Now()

		open := openCalls(t, s, 0)
		qt.Assert(t, qt.HasLen(open, 1))
		call := open[0]
		qt.Check(t, qt.Equals(call.Pair(), "gousdt_calls:left"))
		qt.Check(t, qt.Equals(call.Start.Probe, "gousdt_calls:left__start"))
		qt.Check(t, qt.Equals(call.Start.PID, c.pid))
		qt.Check(t, qt.Equals(call.Start.TID, c.pid))
		qt.Check(t, qt.Equals(call.Start.Command, "calls"))
		text, _ := call.Start.Args[1].Data()
		qt.Check(t, qt.Equals(string(text), "one at a time"))
		qt.Check(t, qt.IsTrue(len(call.Start.Stack) > 0))
		// A variable of the program has what it has now.
		qt.Check(t, qt.DeepEquals(texts(call.Start)[1:], []string{`"one at a time"`, `"web"`}))
		qt.Check(t, qt.DeepEquals(texts(call)[1:], []string{`"one at a time"`, `"web, l"...`}))
		qt.Check(t, qt.Equals(call.Site, call.Start.Site))
		qt.Check(t, qt.IsTrue(!call.Start.Time.Before(before) && !call.Start.Time.After(started)),
			qt.Commentf("%v", call.Start.Time))
		qt.Check(t, qt.IsTrue(call.Duration > 0 && call.Duration <= time.Since(before)))
		qt.Check(t, qt.HasLen(openCalls(t, s, time.Since(before)), 0))

		fmt.Fprintln(c.stdin)
		e := next(t, s, 1)[0]
		qt.Check(t, qt.Equals(e.Start.Monotonic, call.Start.Monotonic))
		qt.Check(t, qt.HasLen(openCalls(t, s, 0), 0))
	})
}

// A call whose process has ended does not go on.
func TestCallsOfEndedProcessesAreNotOpen(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Spans: everyCall}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
	c := startCaller(t, path, "slowly")
	c.call("")
	qt.Assert(t, qt.HasLen(openCalls(t, s, 0), 1))
	qt.Assert(t, qt.IsNil(c.cmd.Process.Kill()))
	c.cmd.Wait()
	qt.Check(t, qt.HasLen(openCalls(t, s, 0), 0))
}

// A call inside which its process ends is an event that says how, and has what
// its start has, if the filter may hold. No table has its time.
func TestCallsThatExitsEnd(t *testing.T) {
	path := copyOf(t, "calls")
	const name = "gousdt_calls:left"
	for _, test := range []struct {
		does   string
		signal syscall.Signal
		by     string
		filter string
		ended  string // "" for no event
	}{
		{"slowly", syscall.SIGKILL, "", "duration > 1ns && failed == 1", "killed by SIGKILL"},
		{"slowly", syscall.SIGSEGV, "", "arg1 == 1 && str(start.arg1, 3) == \"one\"", "killed by SIGSEGV"},
		{"slowly", syscall.SIGKILL, "", "failed", "killed by SIGKILL"},
		{"slowly", syscall.Signal(34), "arg0=arg1", "", "killed by signal 34"},
		{"leave", 0, "", "", "exited with status 0"},
		{"leave", 0, "arg0=arg1", "", "exited with status 0"},
		{"slowly", syscall.SIGKILL, "", "duration > 1h", ""},
		{"slowly", syscall.SIGKILL, "", "failed == 0", ""},
		{"slowly", syscall.SIGKILL, "", "str(start.arg1, 3) == \"two\"", ""},
		{"exec", syscall.SIGKILL, "", "", ""},
	} {
		t.Run(fmt.Sprint(test), func(t *testing.T) {
			latency := trace.Latency{Pair: name + "|aborted", By: test.by}
			if test.filter == "failed" {
				latency.Pair = name // none of its ends can be what the filter lets through
			}
			opts := &trace.SessionOptions{Filter: test.filter, Events: &trace.EventOptions{
				Spans: []trace.Latency{latency}, Exits: true,
				Captures: []trace.Capture{{Arg: "arg1"}}}}
			if test.filter == "" {
				opts.Aggregations = []*trace.Aggregation{{Latency: &latency}}
			}
			s := newSession(t, opts)
			before := time.Now()
			c := startCaller(t, path, test.does)
			// Closed at once: the event needs what the attachment knows.
			a := attach(t, s, usdt.Target{PID: c.pid, Path: path}, "gousdt_calls:*", nil)
			c.call("")
			if test.signal != 0 {
				qt.Assert(t, qt.IsNil(c.cmd.Process.Signal(test.signal)))
			}
			c.cmd.Wait()
			qt.Check(t, qt.HasLen(openCalls(t, s, 0), 0))
			qt.Assert(t, qt.IsNil(a.Close()))
			var want trace.Losses
			switch {
			case test.does == "exec":
				want.Replaced = 1
			case test.signal != 0:
				want.Killed = 1
			default:
				want.Exited = 1
			}
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(losses, want))
			if test.ended != "" {
				e := next(t, s, 1)[0]
				qt.Check(t, qt.Equals(e.Ended, test.ended))
				qt.Check(t, qt.IsTrue(e.Failed))
				qt.Check(t, qt.Equals(e.Pair(), name))
				qt.Check(t, qt.HasLen(e.Args, 0))
				qt.Check(t, qt.IsTrue(e.Site == e.Start.Site && e.Site.Name == "left__start"))
				qt.Check(t, qt.Equals(e.Duration, e.Monotonic-e.Start.Monotonic))
				qt.Check(t, qt.IsTrue(e.Duration > 0 && e.Duration < time.Since(before)))
				qt.Check(t, qt.IsTrue(e.Start.Time.After(before) && e.Time.Before(time.Now())))
				tid := c.pid
				if test.by != "" {
					tid = 0
				}
				for _, end := range []*trace.Event{e, e.Start} {
					qt.Check(t, qt.Equals(end.PID, c.pid))
					qt.Check(t, qt.Equals(end.Command, "calls"))
				}
				qt.Check(t, qt.Equals(e.TID, tid))
				want := map[string]string{"slowly": "one at a time"}[test.does]
				text, _ := e.Start.Args[1].Data()
				qt.Check(t, qt.Equals(string(text), want))
			}
			for _, of := range opts.Aggregations {
				snapshot, err := s.Snapshot(of)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.HasLen(snapshot.Rows, 0))
			}
			silent(t, s)
		})
	}
}

// A thread that exits inside a call ends it, not those of others.
func TestCallsThatThreadsLeave(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: everyCall, Exits: true}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
	c := startCaller(t, path)
	c.call("elsewhere")
	for _, e := range next(t, s, 40) {
		qt.Check(t, qt.Equals(e.Ended, "thread exited"))
		qt.Check(t, qt.IsTrue(e.PID == c.pid && e.TID != c.pid))
	}
	silent(t, s)
}

func TestCallsThatFailAreNotOpen(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{
			{Pair: "gousdt_calls:query|aborted"}},
	}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
	startCaller(t, path).call("failed")
	qt.Check(t, qt.HasLen(openCalls(t, s, 0), 0))
}

// A call is open if it would count if it ended now, as far as that is known.
func TestOpenCallsThatCount(t *testing.T) {
	path := copyOf(t, "calls")
	for _, test := range []struct {
		filter string
		open   int
	}{
		{"duration > 1ns", 1},
		{"duration > 1h", 0},
		{"duration < 1h && duration != 5ns", 1},
		{"1h <= duration", 0},
		{"!(duration > 1h)", 1},
		{`str(start.arg1, 3) == "one"`, 1},
		{`str(start.arg1, 3) != "one"`, 0},
		{`!(str(start.arg1, 3) == "one")`, 0},
		{`!(str(start.arg1, 3) == "two") && (duration > 1h || start.arg0 > 0)`, 1},
		{"arg1 == 7", 1}, // of the end: not known yet
		{"!(arg1 == 7)", 1},
		{"arg1 == 7 && start.arg0 == 0", 0},
		{"pid == 1", 0},
		{"comm == \"calls\" && uid == 0 && cgroup > 0", 1},
		{"comm != \"calls\"", 0},
		{"!(comm == \"calls\" || arg1 == 7)", 0},
		{"!(comm == \"other\" || arg1 == 7)", 1},
		{"start.arg0 != 1 || tid == 1 || uid != 0", 0},
		{"global.gousdt_statement > 0 && duration > 1ns", 1},
		{"!(global.gousdt_statement > 0)", 0},
		{"str(global.gousdt_statement) == \"web\"", 1},
		{"global.gousdt_statement != \"web\"", 0},
	} {
		for name, opts := range map[string]*trace.SessionOptions{
			"of events": {Filter: test.filter, Events: &trace.EventOptions{Spans: everyCall}},
			"of an aggregation": aggregating(&trace.Aggregation{
				Latency: &everyCall[0], Where: test.filter}),
		} {
			t.Run(test.filter+" "+name, func(t *testing.T) {
				s := newSession(t, opts)
				attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
				c := startCaller(t, path, "slowly")
				c.call("")
				open := openCalls(t, s, 0)
				qt.Check(t, qt.HasLen(open, test.open))
				for _, call := range open {
					qt.Check(t, qt.Equals(call.Start.PID, c.pid))
					qt.Check(t, qt.Equals(call.Start.Command, "calls"))
					qt.Check(t, qt.Equals(call.Start.Site == nil, opts.Events == nil))
				}
			})
		}
	}
}

// Threads make calls while the open ones are read. Later calls of a thread have
// greater numbers: a mixture of two calls would not.
func TestOpenCallsOfManyThreads(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Filter: "arg1 == 7",
		Events: &trace.EventOptions{Spans: everyCall}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
	began := time.Now()
	c := startCaller(t, path, "always")
	type last struct {
		at time.Duration
		id int64
	}
	threads := make(map[int]last)
	for seen := 0; seen < 1000; {
		for _, call := range openCalls(t, s, 0) {
			seen++
			qt.Assert(t, qt.Equals(call.Start.PID, c.pid))
			qt.Assert(t, qt.IsTrue(call.Duration < time.Since(began)))
			now := last{call.Start.Monotonic, call.Start.Args[0].Int()}
			before := threads[call.Start.TID]
			qt.Assert(t, qt.Equals(now.at > before.at, now.id > before.id),
				qt.Commentf("%v, and then %v", before, now))
			threads[call.Start.TID] = now
		}
	}
}

func openCalls(t testing.TB, s *trace.Session, longer time.Duration) []*trace.Event {
	t.Helper()
	open, err := s.OpenCalls(longer)
	qt.Assert(t, qt.IsNil(err))
	return open
}

// A call is reported once, although the kernel begins its map again where a
// process has ended meanwhile.
func TestOpenCallsAreReportedOnce(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Spans: everyCall}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:*", nil)
	var all []*caller
	for range 100 {
		c := startCaller(t, path, "slowly")
		c.call("")
		all = append(all, c)
	}
	var ending sync.WaitGroup
	ended := make(chan struct{})
	ending.Go(func() {
		defer close(ended)
		for _, c := range all[1:] {
			qt.Check(t, qt.IsNil(c.cmd.Process.Kill()))
			c.cmd.Wait()
			_, err := s.Losses() // it removes the call
			qt.Check(t, qt.IsNil(err))
		}
	})
	defer ending.Wait()
	for {
		seen := make(map[int]bool)
		for _, call := range openCalls(t, s, 0) {
			qt.Assert(t, qt.IsFalse(seen[call.Start.TID]), qt.Commentf("%v comes twice", call.Start))
			seen[call.Start.TID] = true
		}
		qt.Assert(t, qt.IsTrue(seen[all[0].pid]))
		select {
		case <-ended:
			return
		default:
		}
	}
}

// A program that runs in the place of another one ends its calls. Its own end
// is of none of them, and its own calls are not inside them.
func TestExecEndsCalls(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("exec.d", []byte(`provider gousdt_calls {
		call alone() { alone; left__start .. left__done; };
		call outermost() { left__start .. left__done; };
		call each() { each; left__start .. left__done; };
	};`))))
	for name, latency := range map[string]trace.Latency{
		"left": {}, "alone": {}, "outermost": {}, "each": {}, "left by": {By: "arg0=arg1"},
	} {
		for _, lines := range []string{"end call", "call end", "call call"} {
			t.Run(name+" "+lines, func(t *testing.T) {
				pair, _, _ := strings.Cut(name, " ")
				latency.Pair = "gousdt_calls:" + pair
				s := newSession(t, &trace.SessionOptions{Definitions: definitions,
					Events: &trace.EventOptions{Spans: []trace.Latency{latency}}})
				path := copyOf(t, "calls")
				attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
				c := startCaller(t, path, "exec")
				c.call("") // until the new program runs
				execed := time.Now()
				qt.Check(t, qt.HasLen(openCalls(t, s, 0), 0))
				want := trace.Losses{Replaced: 1}
				losses, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(losses, want))
				for line := range strings.FieldsSeq(lines) {
					fmt.Fprintln(c.stdin, line)
					if line == "call" {
						qt.Check(t, qt.IsTrue(next(t, s, 1)[0].Start.Time.After(execed)))
						continue
					}
					want.Unmatched++
				}
				// They may be read in the middle of the hit.
				testneeds.Await(t, patience, "its end", func() bool {
					losses, err = s.Losses()
					return err != nil || withLeft(losses) == want
				})
				qt.Assert(t, qt.IsNil(err))
				silent(t, s)
			})
		}
	}
}

// Where there is no room for the time of an exec, calls that began before it
// are over all the same.
func TestExecsWithoutRoomEndCalls(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{{Pair: "gousdt_calls:left", By: "arg0=arg1"}}}})
	path := copyOf(t, "calls")
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
	trace.FillExecs(s)
	c := startCaller(t, path, "exec")
	c.call("") // until the new program runs
	fmt.Fprintln(c.stdin, "end")
	c.stdin.Close()
	_ = c.cmd.Wait()
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(losses, trace.Losses{Replaced: 1, Unmatched: 1}))
	silent(t, s)
}

// Calls that exec has ended are losses, also after their probes are detached.
func TestCallsEndedByExecStayLost(t *testing.T) {
	p := start(t, "target-pie")
	s := newSession(t, aggregating(&trace.Aggregation{Latency: &trace.Latency{
		Pair: "gousdt_test:three..gousdt_test:twelve"}}))
	a := attach(t, s, usdt.Target{Path: p.path}, "gousdt_test:t*", nil)
	p.Fire("three", 3)
	p.Exec()
	for range 2 {
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses, trace.Losses{Replaced: 3}))
		qt.Assert(t, qt.IsNil(a.Close()))
	}
}

// A read that comes too late goes on, and nobody has its values.
func TestLateReadsOfOpenCalls(t *testing.T) {
	late, ended := make(chan struct{}), make(chan struct{})
	values := trace.InTime(10*time.Millisecond, 2, func(i int) []trace.Value {
		<-late
		if i == 1 {
			defer close(ended)
		}
		return make([]trace.Value, 1)
	})
	qt.Check(t, qt.IsNil(values))
	close(late)
	<-ended
	values = trace.InTime(time.Minute, 2, func(i int) []trace.Value { return make([]trace.Value, i) })
	qt.Assert(t, qt.HasLen(values, 2))
	qt.Check(t, qt.HasLen(values[1], 1))
}
