// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// caller is a process of internal/testdata/calls.c.
type caller struct {
	t      testing.TB
	path   string
	pid    int
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
}

type trueCall struct {
	name      string
	id        int64
	tid       int
	low, high time.Duration
}

func (c trueCall) text() string {
	if c.name == "left" || c.name == "right" {
		return ""
	}
	return fmt.Sprint(c.name, " ", c.id)
}

func startCaller(t testing.TB, path string, args ...string) *caller {
	t.Helper()
	cmd := exec.Command(path, args...)
	stdin, err := cmd.StdinPipe()
	qt.Assert(t, qt.IsNil(err))
	stdout, err := cmd.StdoutPipe()
	qt.Assert(t, qt.IsNil(err))
	cmd.Stderr = os.Stderr
	qt.Assert(t, qt.IsNil(cmd.Start()))
	t.Cleanup(func() {
		stdin.Close()
		cmd.Wait()
	})
	return &caller{t: t, path: path, pid: cmd.Process.Pid, cmd: cmd, stdin: stdin,
		stdout: bufio.NewReader(stdout)}
}

// call has the process go through a scenario, and returns its calls by their
// IDs.
func (c *caller) call(scenario string) map[int64]trueCall {
	c.t.Helper()
	fmt.Fprintln(c.stdin, scenario)
	calls := make(map[int64]trueCall)
	for {
		line, err := c.stdout.ReadString('\n')
		qt.Assert(c.t, qt.IsNil(err))
		if line == "ok\n" {
			return calls
		}
		var call trueCall
		_, err = fmt.Sscanf(line, "call %s %d %d %d %d\n", &call.name, &call.id, &call.tid,
			&call.low, &call.high)
		qt.Assert(c.t, qt.IsNil(err), qt.Commentf("%s", line))
		calls[call.id] = call
	}
}

var everyCall = []trace.Latency{{Pair: "gousdt_calls:*"}}

// check compares an event with its true call, and returns the ID of the call.
func (c *caller) check(e *trace.Event, calls map[int64]trueCall) int64 {
	c.t.Helper()
	qt.Assert(c.t, qt.IsNotNil(e.Start))
	id := e.Start.Args[0].Int()
	call, ok := calls[id]
	qt.Assert(c.t, qt.IsTrue(ok), qt.Commentf("%v after %v", e, e.Start))
	qt.Check(c.t, qt.Equals(e.Args[1].Int(), id), qt.Commentf("%v after %v", e, e.Start))
	qt.Check(c.t, qt.IsTrue(call.low <= e.Duration && e.Duration <= call.high),
		qt.Commentf("%v after %v: %v is not between %v and %v", e, e.Start, e.Duration, call.low,
			call.high))
	qt.Check(c.t, qt.Equals(e.Monotonic-e.Start.Monotonic >= e.Duration, true))
	qt.Check(c.t, qt.Equals(e.Time.Sub(e.Start.Time) >= e.Duration, true))
	end := call.name + "__done"
	if e.Failed {
		end = "aborted"
	}
	qt.Check(c.t, qt.Equals(e.Probe, "gousdt_calls:"+end))
	qt.Check(c.t, qt.Equals(e.Start.Probe, "gousdt_calls:"+call.name+"__start"))
	for _, end := range []*trace.Event{e, e.Start} {
		qt.Check(c.t, qt.Equals(end.PID, c.pid))
		qt.Check(c.t, qt.Equals(end.TID, call.tid))
		qt.Check(c.t, qt.Equals(end.Command, "calls"))
	}
	qt.Check(c.t, qt.Equals(e.Start.CPU, -1))
	return id
}

// Calls inside each other, recursive ones, those that are left by a long jump
// and those that overlap each have their own time and arguments.
func TestSpansAreTrue(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"))
		s := newSession(t, &trace.SessionOptions{
			Mode: mode,
			Events: &trace.EventOptions{
				Spans: everyCall, StackDepth: 5,
				Captures: []trace.Capture{{Arg: "arg1", Probes: []elfnote.Pattern{
					elfnote.MustParsePattern("*__start"),
				}}},
			},
		})
		_, err := s.Attach(usdt.Target{Path: c.path}, nil)
		qt.Assert(t, qt.IsNil(err))

		for _, test := range []struct {
			scenario string
			missing  int // calls without an event
			losses   trace.Losses
		}{
			{scenario: "nested"},
			{scenario: "recursive"},
			{scenario: "crossed"},
			{scenario: "thrown", losses: trace.Losses{Left: 9}},
			{scenario: "deep", missing: 6, losses: trace.Losses{Replaced: 6, Unmatched: 6}},
			{scenario: "threads"},
			{scenario: "nested"},
		} {
			t.Run(test.scenario, func(t *testing.T) {
				before, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				calls := c.call(test.scenario)
				qt.Assert(t, qt.IsTrue(len(calls) > 0))
				for _, e := range next(t, s, len(calls)-test.missing) {
					id := c.check(e, calls)
					text, complete := e.Start.Args[1].Data()
					qt.Check(t, qt.Equals(string(text), calls[id].text()))
					qt.Check(t, qt.IsTrue(complete))
					qt.Check(t, qt.HasLen(e.Start.Stack, 0))
					delete(calls, id)
				}
				qt.Check(t, qt.HasLen(calls, test.missing))
				after, err := s.Losses()
				qt.Assert(t, qt.IsNil(err))
				test.losses.Left += before.Left
				test.losses.Replaced += before.Replaced
				test.losses.Unmatched += before.Unmatched
				qt.Check(t, qt.Equals(after, test.losses))
			})
		}
		silent(t, s)
	})
}

// Calls that fail end elsewhere, or nowhere: these are counted.
func TestSpansThatFail(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		const failed = 11 // the last of which goes on to its end
		for _, by := range []trace.Latency{{}, {By: "arg0=arg1"}} {
			by.Pair = "gousdt_calls:query|aborted"
			ends := &trace.Aggregation{Latency: &by, By: []string{"probe"}}
			s := newSession(t, &trace.SessionOptions{Mode: mode, Aggregations: []*trace.Aggregation{ends},
				Events: &trace.EventOptions{Spans: []trace.Latency{by}}})
			c := startCaller(t, copyOf(t, "calls"))
			attach(t, s, usdt.Target{Path: c.path}, "*", nil)
			calls := c.call("failed")
			for i, e := range next(t, s, failed) {
				qt.Check(t, qt.IsTrue(e.Failed))
				if i < failed-1 {
					c.check(e, calls)
				}
				delete(calls, e.Start.Args[0].Int())
			}
			qt.Check(t, qt.HasLen(calls, 0))
			silent(t, s)
			qt.Check(t, qt.DeepEquals(rows(snapshot(t, ends)),
				[]string{"[gousdt_calls:aborted] 11 ?"}))
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(losses, trace.Losses{}))
		}

		s := newSession(t, &trace.SessionOptions{Mode: mode,
			Events: &trace.EventOptions{
				Spans: []trace.Latency{{Pair: "gousdt_calls:query"}}}})
		c := startCaller(t, copyOf(t, "calls"))
		attach(t, s, usdt.Target{Path: c.path}, "*", nil)
		c.call("failed")
		qt.Check(t, qt.IsFalse(next(t, s, 1)[0].Failed))
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses, trace.Losses{Unfinished: failed - 1}))
		c.stdin.(io.Closer).Close()
		qt.Assert(t, qt.IsNil(c.cmd.Wait()))
		losses, err = s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses, trace.Losses{Exited: failed - 1}))
	})
}

// The kernel decides which calls are sent.
func TestSpansThatAreFiltered(t *testing.T) {
	c := startCaller(t, copyOf(t, "calls"))
	const limit = 200 * time.Microsecond
	slow := &trace.Aggregation{Latency: &everyCall[0], By: []string{"probe"},
		Sum: true, Where: "duration > 200us"}
	s := newSession(t, &trace.SessionOptions{
		Aggregations: []*trace.Aggregation{slow},
		Filter:       `duration > 100us && !(start.arg1 == "x") && str(start.arg1, 5) == "outer" && arg0 == -1`,
		Events:       &trace.EventOptions{Spans: everyCall},
	})
	attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:*", nil)
	calls := c.call("recursive")
	var low, high, count uint64
	want := 0
	for id, call := range calls {
		if call.name != "outer" {
			delete(calls, id)
			continue
		}
		qt.Assert(t, qt.IsTrue(call.low > limit)) // it has others inside
		want++
		count, low, high = count+1, low+uint64(call.low), high+uint64(call.high)
	}
	qt.Assert(t, qt.Equals(want, 3))
	for _, e := range next(t, s, want) {
		c.check(e, calls)
	}
	rows := snapshot(t, slow).Rows
	qt.Assert(t, qt.HasLen(rows, 1))
	qt.Check(t, qt.Equals(rows[0].Keys[0].String(), "gousdt_calls:outer__done"))
	qt.Check(t, qt.Equals(rows[0].Count, count))
	qt.Check(t, qt.IsTrue(low <= rows[0].Sum.Uint() && rows[0].Sum.Uint() <= high))
	silent(t, s)
}

// Options by which an event has less, or more.
func TestSpansWithOtherOptions(t *testing.T) {
	c := startCaller(t, copyOf(t, "calls"))
	for name, opts := range map[string]*trace.SessionOptions{
		"by an argument": {Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: everyCall[0].Pair, By: "arg0=arg1"}},
		}},
		"reused":          {Events: &trace.EventOptions{Spans: everyCall, ReuseEvents: true}},
		"copies of stack": {Events: &trace.EventOptions{Spans: everyCall, StackCopy: 8192}},
		"one pair": {Events: &trace.EventOptions{
			Spans: []trace.Latency{{Pair: "gousdt_calls:left"},
				{Pair: "right"}},
		}},
		"late": {Events: &trace.EventOptions{Spans: everyCall, Delay: time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, opts)
			attach(t, s, usdt.Target{Path: c.path, PID: c.pid}, "*", nil)
			calls := c.call("crossed")
			if opts.Events.Spans[0].By == "" {
				// One after the other, since an event may be reused.
				for range 2 {
					delete(calls, c.check(next(t, s, 1)[0], calls))
				}
			} else {
				for _, e := range next(t, s, 2) {
					delete(calls, c.check(e, calls))
				}
			}
			qt.Check(t, qt.HasLen(calls, 0))
			silent(t, s)
		})
	}
	t.Run("a pair in two ways", func(t *testing.T) {
		left := "gousdt_calls:left"
		s := newSession(t, &trace.SessionOptions{
			Events: &trace.EventOptions{
				Spans: []trace.Latency{{Pair: left, By: "arg0=arg1"}, {Pair: left}}},
		})
		attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:left*", nil)
		calls := c.call("crossed")
		events := next(t, s, 2)
		qt.Check(t, qt.Equals(c.check(events[0], calls), c.check(events[1], calls)))
	})
	t.Run("a pair by its name and by wildcards", func(t *testing.T) {
		s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Spans: []trace.Latency{
			{Pair: "gousdt_calls:lef*"}, {Pair: "gousdt_calls:left|aborted"}, {Pair: "gousdt_calls:*eft"},
			{Pair: "gousdt_calls:left__start..left__done"}}}})
		attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:left*", nil)
		c.call("crossed")
		next(t, s, 1)
		silent(t, s)
	})
	t.Run("reused, with texts of the start alone", func(t *testing.T) {
		s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
			Spans: everyCall, ReuseEvents: true,
			Captures: []trace.Capture{{
				Arg: "arg1", Probes: []elfnote.Pattern{elfnote.MustParsePattern("outer__start")},
			}},
		}})
		attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:outer*", nil)
		calls := c.call("nested")
		e := next(t, s, 1)[0]
		qt.Assert(t, qt.IsNil(s.Close())) // the ring buffer's memory is gone
		id := c.check(e, calls)
		qt.Check(t, qt.Equals(e.Start.Args[1].String(), fmt.Sprintf(`"outer %d"`, id)))
	})
	t.Run("arguments only", func(t *testing.T) {
		s := newSession(t, &trace.SessionOptions{
			Events: &trace.EventOptions{Spans: everyCall, ArgumentsOnly: true}})
		attach(t, s, usdt.Target{Path: c.path}, "gousdt_calls:*", nil)
		calls := c.call("crossed")
		for _, e := range next(t, s, 2) {
			qt.Check(t, qt.IsTrue(calls[e.Start.Args[0].Int()].low <= e.Duration))
			qt.Check(t, qt.Equals(e.Start.PID, 0))
		}
	})
}

// Both probes of a call are in one function, so all but the instruction pointer
// is the same.
func TestSpansWithStacksOfStarts(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"))
		for name, opts := range map[string]*trace.EventOptions{
			"walked": {StackDepth: 5},
			"copied": {StackCopy: 5000, Captures: []trace.Capture{{Arg: "arg1"}}},
			"both":   {StackDepth: 127, StackCopy: 32 << 10, ReuseEvents: true},
		} {
			t.Run(name, func(t *testing.T) {
				opts.Spans, opts.StartStacks = everyCall, true
				s := newSession(t, &trace.SessionOptions{Mode: mode, Events: opts})
				attach(t, s, usdt.Target{Path: c.path, PID: c.pid}, "gousdt_calls:*", nil)
				calls := c.call("crossed")
				for range 2 {
					e := next(t, s, 1)[0]
					c.check(e, calls)
					if opts.StackCopy > 0 {
						pc, sp := len(e.Registers)-1, stackPointers[runtime.GOARCH]
						qt.Check(t, qt.Equals(e.Registers[pc]-e.Start.Registers[pc],
							e.Site.Location-e.Start.Site.Location))
						qt.Check(t, qt.Equals(e.Registers[sp], e.Start.Registers[sp]))
						qt.Check(t, qt.Equals(len(e.StackCopy), len(e.Start.StackCopy)))
						qt.Assert(t, qt.IsTrue(len(e.StackCopy) > 256))
						same := len(e.StackCopy) * 3 / 4 // of the callers
						qt.Check(t, qt.DeepEquals(e.StackCopy[same:], e.Start.StackCopy[same:]))
					}
					if opts.StackDepth > 0 {
						testprog.RequireStacks(t)
						qt.Assert(t, qt.IsTrue(len(e.Stack) > 0))
						qt.Assert(t, qt.HasLen(e.Start.Stack, len(e.Stack)))
						qt.Check(t, qt.Equals(e.Stack[0]-e.Start.Stack[0],
							e.Site.Location-e.Start.Site.Location))
						qt.Check(t, qt.DeepEquals(e.Stack[1:], e.Start.Stack[1:]))
					}
				}
				silent(t, s)
			})
		}
	})
}

// withLeft counts calls that were left as replaced. Of a thread that is over,
// and of a program that has executed another one, a call is one or the other as
// the new stack lies.
func withLeft(losses trace.Losses) trace.Losses {
	losses.Replaced, losses.Left = losses.Replaced+losses.Left, 0
	return losses
}

// A call that a thread has left is not ended by a later thread that has got the
// same number.
func TestSpanOfAnEarlierThread(t *testing.T) {
	const lastPID = "/proc/sys/kernel/ns_last_pid"
	if _, err := os.Stat(lastPID); err != nil {
		testneeds.Missing(t, "needs %s: %v", lastPID, err)
	}
	testneeds.Root(t)
	path := copyOf(t, "calls")
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Spans: everyCall}})
	attach(t, s, usdt.Target{Path: path}, "gousdt_calls:left__*", nil)
	finish := func(c *caller) {
		fmt.Fprintln(c.stdin)
		rest, err := io.ReadAll(c.stdout)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(strings.Count(string(rest), "\n"), 1))
		qt.Assert(t, qt.IsNil(c.cmd.Wait())) // its number is free
	}
	first := startCaller(t, path, "leave")
	finish(first)
	time.Sleep(150 * time.Millisecond) // younger calls are believed
	for range 100 {
		last, err := os.ReadFile(lastPID)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.WriteFile(lastPID, []byte(strconv.Itoa(first.pid-1)), 0o644)))
		second := startCaller(t, path, "end")
		// Processes of other tests get numbers that were not used lately.
		qt.Assert(t, qt.IsNil(os.WriteFile(lastPID, last, 0o644)))
		if second.pid != first.pid {
			continue // another process has got the number
		}
		finish(second)
		silent(t, s)
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(withLeft(losses), trace.Losses{Replaced: 1, Unmatched: 1}))
		return
	}
	t.Fatal("no process has got the number of an earlier one")
}

// Hits are not seen while nothing is attached: a call that was going on then is
// not measured. If only another file is detached, it is.
func TestSpansBeginAnewWithAnAttachment(t *testing.T) {
	path := copyOf(t, "calls")
	for name, again := range map[string]bool{"attached again": true,
		"another file is detached": false} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Spans: everyCall}})
			target := usdt.Target{Path: path}
			a := attach(t, s, target, "gousdt_calls:left__*", nil)
			other := attach(t, s, usdt.Target{Path: copyOf(t, "calls")},
				"gousdt_calls:left__*", nil)
			c := startCaller(t, path, "slowly")
			fmt.Fprintln(c.stdin)
			line, err := c.stdout.ReadString('\n')
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(line, "ok\n"))
			want := trace.Losses{}
			if again {
				qt.Assert(t, qt.IsNil(a.Close()))
				attach(t, s, target, "gousdt_calls:left__*", nil)
				want.Unmatched = 1
			} else {
				qt.Assert(t, qt.IsNil(other.Close()))
			}
			fmt.Fprintln(c.stdin)
			_, err = io.ReadAll(c.stdout)
			qt.Assert(t, qt.IsNil(err))
			if !again {
				qt.Check(t, qt.Equals(next(t, s, 1)[0].Start.Args[0].Int(), 1))
			}
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(losses, want))
			silent(t, s)
		})
	}
}

// The end of a call whose start has been detached is not taken for that of a
// call from another site, which has got the number of the first.
func TestStartsThatAreDetached(t *testing.T) {
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{
		Spans: []trace.Latency{
			{Pair: "gousdt_calls:left__start..gousdt_calls:left__done"},
			{Pair: "gousdt_calls:inner"},
		}}})
	target := usdt.Target{Path: copyOf(t, "calls")}
	starts := attach(t, s, target, "gousdt_calls:left__start", nil)
	attach(t, s, target, "gousdt_calls:left__done", nil)
	c := startCaller(t, target.Path, "slowly")
	c.call("")
	qt.Assert(t, qt.IsNil(starts.Close()))
	for range 2 { // the number is free when all events have been read
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		for e, err := range s.Events(ctx) {
			t.Fatal(e, err)
		}
		cancel()
	}
	attach(t, s, target, "gousdt_calls:inner__*", nil)
	fmt.Fprintln(c.stdin)
	qt.Assert(t, qt.IsNil(c.cmd.Wait()))
	silent(t, s)
}

func TestSpanErrors(t *testing.T) {
	path := copyOf(t, "calls")
	for _, test := range []struct {
		opts trace.SessionOptions
		want string
	}{
		{trace.SessionOptions{Events: &trace.EventOptions{Spans: []trace.Latency{{}}}},
			`option Spans\[0\]: Pair: no pair of probes is given`},
		{trace.SessionOptions{Filter: "duration > 1ns"},
			`option Filter: duration, failed and start.argN are known only at the end of a call: .*`},
		{trace.SessionOptions{
			Events: &trace.EventOptions{Spans: []trace.Latency{
				{Pair: "sql"}}}},
			`.*: there is no pair of probes sql \(there are: (gousdt_calls:\w+(, )?){8}\)`},
		{trace.SessionOptions{Filter: "arg9 == 1", Events: &trace.EventOptions{Spans: everyCall}},
			`.*the condition "arg9 == 1" can never hold.*`},
		{trace.SessionOptions{Filter: strings.Repeat("start.arg0 == 1 || ", 31) +
			"start.arg0 == 2",
			Events: &trace.EventOptions{Spans: everyCall}},
			`option Filter: 32 comparisons with values of the start are more than 27`},
		{trace.SessionOptions{Events: &trace.EventOptions{
			Spans:    everyCall,
			Captures: []trace.Capture{{Arg: "arg1", Max: 30_000}},
		}},
			`option Captures: the captures of each start take 30017 bytes, more than 28672: capture less`},
	} {
		_, err := trace.Open(usdt.Target{Path: path}, &test.opts)
		qt.Check(t, qt.ErrorMatches(err, test.want))
	}
}

// A session of spans that the kernel refuses has no maps to look into.
func TestSessionsOfSpansMayFail(t *testing.T) {
	testprog.RequireBPF(t)
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // for good: the thread ends without its privileges
		none := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		err := unix.Capset(&none, &make([]unix.CapUserData, 2)[0])
		if err == nil {
			_, err = trace.New(&trace.SessionOptions{
				Events: &trace.EventOptions{Spans: everyCall}})
		}
		failed <- err
	}()
	var refused *attaching.PermissionError
	qt.Check(t, qt.ErrorAs(<-failed, &refused))
}
