// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"weak"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A pattern leaves out what another tracer holds without its semaphore.
func TestAttachLeavesOutWhatAnotherTracerHolds(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		p := start(t, "target-pie")
		both := []elfnote.Pattern{elfnote.MustParsePattern("*:three"), elfnote.MustParsePattern("*:guarded")}
		sel, err := usdt.Select(usdt.Target{Path: p.path, PID: p.PID}, both...)
		qt.Assert(t, qt.IsNil(err))
		defer sel.Close()
		for _, site := range sel.Sites() {
			if site.Name == "guarded" {
				testprog.HoldSite(t, p.path, site.Offset)
			}
		}
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		_, err = s.Attach(usdt.Target{Selection: sel}, nil)
		qt.Assert(t, qt.ErrorMatches(err, ".*guarded at .*another tracer has attached this site.*"))
		a, err := s.Attach(usdt.Target{Path: p.path, PID: p.PID}, nil, both...)
		qt.Assert(t, qt.IsNil(err))
		skipped, count := a.Skipped()
		qt.Assert(t, qt.Equals(count, 1))
		qt.Assert(t, qt.Equals(skipped[0].Name, "guarded"))
		p.Fire("three", 1)
		qt.Assert(t, qt.Equals(next(t, s, 1)[0].Probe, "gousdt_test:three"))
	})
}

func TestAttachAndClose(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		one, other := start(t, "target-pie"), start(t, "target-static")
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		qt.Assert(t, qt.Equals(s.Mode(), mode))
		expect := func(want ...string) {
			t.Helper()
			one.Fire("three", 1)
			other.Fire("three", 1)
			one.Fire("sizes", 1)
			var got []string
			for _, event := range next(t, s, len(want)) {
				got = append(got, fmt.Sprint(event.PID == one.PID, " ", event.Probe, " ",
					event.Site.Cookie))
			}
			slices.Sort(got)
			qt.Assert(t, qt.DeepEquals(got, want))
		}
		expect()
		three := attach(t, s, usdt.Target{Path: one.path}, "gousdt_test:three",
			&usdt.AttachOptions{Cookie: 1})
		expect("true gousdt_test:three 1")
		sizes := attach(t, s, usdt.Target{Path: one.path, PID: one.PID}, "sizes",
			&usdt.AttachOptions{
				SiteCookie: func(site usdt.Site) uint64 { return uint64(len(site.Args)) },
			})
		static := attach(t, s, usdt.Target{Path: other.path}, "three", nil)
		expect("false gousdt_test:three 0", "true gousdt_test:sizes 8", "true gousdt_test:three 1")
		qt.Assert(t, qt.HasLen(s.Attachments(), 3))
		qt.Assert(t, qt.IsNil(three.Close()))
		qt.Assert(t, qt.IsNil(three.Close()))
		expect("false gousdt_test:three 0", "true gousdt_test:sizes 8")
		again := attach(t, s, usdt.Target{Path: one.path}, "three", &usdt.AttachOptions{Cookie: 2})
		expect("false gousdt_test:three 0", "true gousdt_test:sizes 8", "true gousdt_test:three 2")
		for _, a := range []*trace.Attachment{sizes, static, again} {
			qt.Assert(t, qt.IsNil(a.Close()))
		}
		expect()
		qt.Assert(t, qt.HasLen(s.Attachments(), 0))
		silent(t, s)
	})
}

func TestAttachUsesNumbersOfSitesAgain(t *testing.T) {
	process := start(t, "target-pie")
	s := newSession(t, nil)
	// Events of sites that are gone come before those of the sites that take
	// their numbers.
	for round := range 20 {
		a := attach(t, s, usdt.Target{Path: process.path, PID: process.PID}, "[it][nh][lr]*",
			&usdt.AttachOptions{Cookie: uint64(round)})
		process.Fire("inlined", 1)
		process.Fire("three", 1)
		qt.Assert(t, qt.IsNil(a.Close()))
		if round%3 == 0 {
			continue
		}
		want := 6
		if round > 1 && round%3 == 1 {
			want = 12
		}
		if round == 1 {
			want = 12
		}
		events := next(t, s, want)
		for i, event := range events {
			qt.Assert(t, qt.Equals(event.Site.Cookie, uint64(round-(want-1-i)/6)))
			if i%6 < 5 {
				qt.Assert(t, qt.Equals(event.Site.Name, "inlined"))
				qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(i%6+1)))
			} else {
				qt.Assert(t, qt.Equals(event.Site.Name, "three"))
			}
		}
	}
	silent(t, s)
}

// A session may outlive many attachments.
func TestCloseForgetsSites(t *testing.T) {
	process := start(t, "target-pie")
	closed := func(t *testing.T, s *trace.Session) weak.Pointer[trace.Site] {
		a := attach(t, s, usdt.Target{Path: process.path}, "inlined", nil)
		site := weak.Make(a.Sites()[0])
		process.Fire("inlined", 1)
		qt.Assert(t, qt.IsNil(a.Close()))
		return site
	}
	remembered := func(site weak.Pointer[trace.Site]) bool {
		runtime.GC()
		return site.Value() != nil
	}
	t.Run("without events", func(t *testing.T) {
		a := &trace.Aggregation{}
		s := newSession(t, aggregating(a))
		site := closed(t, s)
		testneeds.Await(t, 10*time.Second, "the site is forgotten", func() bool { // by goroutines, too
			return !remembered(site)
		})
		qt.Check(t, qt.Equals(snapshot(t, a).Rows[0].Count, 5))
	})
	t.Run("as keys", func(t *testing.T) {
		a := &trace.Aggregation{By: []string{"site"}}
		s := newSession(t, aggregating(a))
		qt.Check(t, qt.IsTrue(remembered(closed(t, s))))
		qt.Check(t, qt.HasLen(snapshot(t, a).Rows, 5))
	})
	t.Run("until events are read", func(t *testing.T) {
		s := newSession(t, nil)
		qt.Check(t, qt.IsTrue(remembered(closed(t, s))))
		qt.Check(t, qt.Equals(next(t, s, 5)[4].Site.Name, "inlined"))
		silent(t, s)
	})
}

func TestAttachSharesProgramsOfAFile(t *testing.T) {
	one := start(t, "target-pie")
	other := one.again(t)
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		if mode == usdt.ModeSingleIPMap {
			return // each attachment has a program of its own
		}
		s := newSession(t, &trace.SessionOptions{Mode: mode})
		a := attach(t, s, usdt.Target{Path: one.path, PID: one.PID}, "three", &usdt.AttachOptions{
			SiteCookie: func(usdt.Site) uint64 { return 1 },
		})
		b := attach(t, s, usdt.Target{Path: other.path, PID: other.PID}, "three",
			&usdt.AttachOptions{Cookie: 1})
		stats, err := s.Stats()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(stats.Programs, 1))
		other.Fire("three", 1)
		one.Fire("three", 1)
		events := next(t, s, 2)
		qt.Assert(t, qt.Equals(events[0].Site, b.Sites()[0]))
		qt.Assert(t, qt.Equals(events[1].Site, a.Sites()[0]))
		qt.Assert(t, qt.IsNil(a.Close()))
		other.Fire("three", 1)
		one.Fire("three", 1)
		qt.Assert(t, qt.Equals(next(t, s, 1)[0].Site, b.Sites()[0]))
		qt.Assert(t, qt.IsNil(b.Close()))
		stats, err = s.Stats()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.HasLen(stats.Programs, 0))
	})
}

// Without a cookie a program knows its site by the low bits of its address, or
// is for one site: it works for a library or a position-independent program in
// processes that do not exist yet.
func TestAttachWithoutPID(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		before := start(t, "target-pie")
		// Values on the stack are in memory in any process, those of the file
		// may not be yet.
		s := open(t, before, "gousdt_test:stack", &trace.SessionOptions{Mode: mode})
		after := before.again(t)
		before.Fire("stack", 1)
		after.Fire("stack", 1)
		child := after.Fork("stack", 1)
		after.Exec()
		after.Fire("stack", 1)
		pids := []int{before.PID, after.PID, child, after.PID}
		for i, event := range next(t, s, 4) {
			qt.Assert(t, qt.Equals(event.PID, pids[i]))
			qt.Assert(t, qt.Equals(event.Args[6].String(), "-9000000000000000001"))
		}
		silent(t, s)
	})
}

func TestAttachCountsSemaphores(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := open(t, process, "gousdt_test:guarded", &trace.SessionOptions{Mode: mode})
		qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 1))
		process.Fire("guarded", 1)
		qt.Assert(t, qt.DeepEquals(texts(next(t, s, 1)[0]), []string{"-2000000000"}))
		silent(t, s)
		qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
	})
}

// After Drain, all earlier hits have been delivered, although delivery is
// delayed and nothing else wakes the reader.
func TestDrain(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:three", &trace.SessionOptions{
		Events: &trace.EventOptions{Delay: time.Hour}})
	var delivered atomic.Int64
	var reading sync.WaitGroup
	reading.Go(func() {
		for range s.Events(context.Background()) {
			delivered.Add(1)
		}
	})
	for i := range int64(20) {
		process.Fire("three", 10)
		qt.Assert(t, qt.IsNil(s.Drain(t.Context())))
		qt.Assert(t, qt.Equals(delivered.Load(), 10*(i+1)))
	}
	qt.Assert(t, qt.IsNil(s.Close()))
	reading.Wait()
	qt.Check(t, qt.ErrorIs(s.Drain(t.Context()), os.ErrClosed))
}

func TestSessionConcurrentUse(t *testing.T) {
	process := start(t, "target-pie")
	s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{Delay: time.Millisecond}})
	var work sync.WaitGroup
	for i := range 4 {
		work.Go(func() {
			for range 5 {
				a, err := s.Attach(usdt.Target{Path: process.path, PID: process.PID},
					&usdt.AttachOptions{Cookie: uint64(i)},
					elfnote.MustParsePattern("gousdt_test:[it][nh][lr]*"))
				if err != nil {
					if !errors.Is(err, os.ErrClosed) {
						t.Error(err)
					}
					return
				}
				if _, err := s.Stats(); err != nil {
					t.Error(err)
				}
				if err := a.Close(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	read := make(chan int)
	go func() {
		n := 0
		for event, err := range s.Events(context.Background()) {
			if err != nil {
				t.Error(err)
				continue
			}
			if event.Site.Name == "inlined" && event.Args[1].Int() != -100-event.Args[0].Int() {
				t.Errorf("wrong arguments: %v", event.Args)
			}
			n++
		}
		read <- n
	}()
	done := make(chan struct{})
	go func() { work.Wait(); close(done) }()
	for running := true; running; {
		process.Fire("inlined", 100)
		select {
		case <-done:
			running = false
		default:
		}
	}
	// On one processor, none of the hits may have met with an attachment.
	_, err := s.Attach(usdt.Target{Path: process.path, PID: process.PID}, nil,
		elfnote.Exact("gousdt_test", "inlined"))
	qt.Assert(t, qt.IsNil(err))
	process.Fire("inlined", 1)
	qt.Assert(t, qt.IsNil(s.Detach()))
	qt.Assert(t, qt.IsTrue(<-read >= 5))
}

func TestOpenErrors(t *testing.T) {
	testprog.RequireBPF(t)
	testprog.LeakCheck(t)
	path := testprog.Path(t, "target-pie")
	for _, test := range []struct {
		target  usdt.Target
		pattern string
		opts    trace.SessionOptions
		want    string
	}{
		{usdt.Target{Path: path}, "gousdt_test:thre", trace.SessionOptions{},
			`.*no probe matches gousdt_test:thre \(nearest: gousdt_test:three.*`},
		{usdt.Target{Path: path}, "thre", trace.SessionOptions{},
			`.*no probe matches thre \(nearest: gousdt_test:three.*`},
		{usdt.Target{Path: path}, "*:t[hr]re", trace.SessionOptions{},
			`.*no probe matches \*:t\[hr\]re \(nearest: gousdt_test:three.*`},
		{usdt.Target{Path: path}, "gousdt_broken:*", trace.SessionOptions{}, ".*no nop there.*"},
		{usdt.Target{Path: "/nonexistent"}, "*", trace.SessionOptions{}, ".*no such file.*"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{Filter: "arg3 == 1"},
			`.*the condition "arg3 == 1" can never hold: gousdt_test:three has no arg3`},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{Filter: "arg0 == "},
			`option Filter: expression "arg0 == ", at column 9: the expression ends where .* is expected`},
		{usdt.Target{Path: path}, "floats", trace.SessionOptions{Filter: "arg0 == arg1"},
			`.*arg0 of gousdt_test:floats and arg1 of .*: a float can only be compared with a number`},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{Mode: 77},
			"option Mode: there is no .*"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: -1}},
			"option RingSize: -1 is not between 0 and .*"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{
			Events: &trace.EventOptions{SamplePerSecond: -1}},
			"option SamplePerSecond: -1 is not between 0 and .*"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{Events: &trace.EventOptions{
			SampleEvery: 2, SamplePerSecond: 1}},
			"option SamplePerSecond: there is SampleEvery, too"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 1<<30 + 1}},
			"option RingSize: .*"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{
			Events: &trace.EventOptions{StackDepth: 128}},
			"option StackDepth: 128 is not between 0 and 127"},
		{usdt.Target{Path: path}, "three", trace.SessionOptions{
			Events: &trace.EventOptions{Delay: -1}},
			"option Delay: -1ns is negative"},
		{usdt.Target{Path: path}, "none",
			*aggregating(&trace.Aggregation{By: []string{"arg0"}}),
			".*nothing can be measured: gousdt_test:none has no arg0"},
	} {
		_, err := trace.Open(test.target, &test.opts, elfnote.MustParsePattern(test.pattern))
		qt.Check(t, qt.ErrorMatches(err, test.want), qt.Commentf("%s %+v", test.pattern, test.opts))
	}
}

func TestAttachFiltersSites(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		process := start(t, "target-pie")
		s := newSession(t, &trace.SessionOptions{Mode: mode, Filter: "arg0 >= 290"})
		a := attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:specs", nil)
		qt.Assert(t, qt.HasLen(a.Sites(), 10))
		if mode != usdt.ModeSingleIPMap {
			qt.Assert(t, qt.Equals(a.LinkCount(), 1))
		}
		process.Fire("specs", 1)
		for i, event := range next(t, s, 10) {
			qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(290+i)))
			qt.Assert(t, qt.Equals(event.Site, a.Sites()[i]))
		}
		silent(t, s)
	})
}

// Ten aggregations with keys of their own for each of 60 sites: more
// instructions than a jump can reach over.
func TestAttachSeveralPrograms(t *testing.T) {
	process := start(t, "target-pie")
	var all []*trace.Aggregation
	for range 10 {
		all = append(all, &trace.Aggregation{
			Value: "arg0", Sum: true, Min: true, Max: true, By: []string{"arg0", "comm", "pid"},
		})
	}
	opts := aggregating(all...)
	opts.Filter = "arg0 < 60"
	s := open(t, process, "gousdt_test:specs", opts)
	stats, err := s.Stats()
	qt.Assert(t, qt.IsNil(err))
	if programs := len(stats.Programs); s.Mode() != usdt.ModeSingleIPMap {
		qt.Assert(t, qt.IsTrue(programs > 1 && programs < 10), qt.Commentf("%d programs", programs))
		qt.Assert(t, qt.Equals(s.Attachments()[0].LinkCount(), programs))
	}
	process.Fire("specs", 2)
	for _, a := range all {
		got := snapshot(t, a).Rows
		qt.Assert(t, qt.HasLen(got, 60))
		for i, row := range got {
			qt.Assert(t, qt.Equals(fmt.Sprint(row.Keys, row.Count, row.Sum, row.Min, row.Max),
				fmt.Sprintf("[%d target-pie %d] 2 %d %d %d", i, process.PID, 2*i, i, i)))
		}
	}
}

// Drain does not wait for later hits, and a process that passes probes without
// end cannot delay it for good.
func TestDrainOfEventsWithoutEnd(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:three", &trace.SessionOptions{
		Events: &trace.EventOptions{RingSize: 1 << 16}})
	ctx, cancel := context.WithCancel(t.Context())
	var working sync.WaitGroup
	working.Go(func() {
		for range s.Events(ctx) {
			time.Sleep(time.Millisecond) // slower than they come
		}
	})
	working.Go(func() {
		for ctx.Err() == nil {
			process.Fire("three", 100_000)
		}
	})
	defer working.Wait()
	defer cancel()
	time.Sleep(100 * time.Millisecond)
	draining, stop := context.WithTimeout(ctx, testneeds.Patience(10*time.Second))
	defer stop()
	qt.Check(t, qt.IsNil(s.Drain(draining)))
}

// The sites of closed attachments do not pile up where no event comes.
func TestSitesAreFreedWithoutEvents(t *testing.T) {
	process := start(t, "target-pie")
	s := newSession(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for e, err := range s.Events(ctx) {
			t.Error(e, err)
		}
	})
	for range 20 {
		a := attach(t, s, usdt.Target{Path: process.path}, "gousdt_test:three", nil)
		qt.Assert(t, qt.IsNil(a.Close()))
		time.Sleep(10 * time.Millisecond) // for the reader
	}
	cancel()
	reading.Wait()
	qt.Check(t, qt.IsTrue(trace.SiteNumbers(s) < 10), qt.Commentf("%d", trace.SiteNumbers(s)))
}

// A call while the session is closed, at whatever moment, succeeds or says that
// the session is closed. Nothing is left in the kernel.
func TestSessionIsClosedAtAnyTime(t *testing.T) {
	process := startCaller(t, copyOf(t, "calls"))
	type action struct {
		name string
		do   func(*trace.Session, *trace.Aggregation) error
	}
	attach := action{"Attach", func(s *trace.Session, _ *trace.Aggregation) error {
		_, err := s.Attach(usdt.Target{Path: process.path, PID: process.pid}, nil,
			elfnote.MustParsePattern("gousdt_calls:outer*"))
		return err
	}}
	watching := action{"Watch", func(s *trace.Session, _ *trace.Aggregation) error {
		w, err := s.Watch(&watch.Options{Filter: only(process.path)}, nil)
		if err != nil {
			return err
		}
		return errors.Join(w.Sync(t.Context(), 0), w.Close())
	}}
	snapshot := action{"Snapshot", func(s *trace.Session, a *trace.Aggregation) error {
		_, err := s.Snapshot(a)
		_, lost := s.Losses()
		_, cost := s.Stats()
		return errors.Join(err, lost, cost)
	}}
	detach := action{"Detach", func(s *trace.Session, _ *trace.Aggregation) error { return s.Detach() }}
	closing := action{"Close", func(s *trace.Session, _ *trace.Aggregation) error { return s.Close() }}

	for _, test := range []struct {
		mode          usdt.Mode
		first, second action
	}{
		// Without cookies each link has a program of its own, which is made
		// after the link before.
		{usdt.ModeSingleIPMap, attach, closing},
		{usdt.ModeSingleIPMap, closing, attach},
		{usdt.ModeAuto, attach, closing},
		{usdt.ModeAuto, attach, detach},
		{usdt.ModeAuto, watching, closing},
		{usdt.ModeAuto, closing, watching},
		{usdt.ModeAuto, snapshot, closing},
		{usdt.ModeAuto, closing, snapshot},
		{usdt.ModeAuto, detach, closing},
	} {
		name := fmt.Sprintf("%s, %s during %s", test.mode, test.second.name, test.first.name)
		t.Run(name, func(t *testing.T) {
			// The first takes this long. The second begins at each part of
			// that.
			parts := 10
			if os.Getenv("GOUSDT_SOAK") != "" {
				parts = 40
			}
			var longest time.Duration
			for part := range parts + 1 {
				a := &trace.Aggregation{Value: "arg0", Min: true, By: []string{"pid"}}
				s := newSession(t, &trace.SessionOptions{Mode: test.mode,
					Aggregations: []*trace.Aggregation{a},
					Events: &trace.EventOptions{
						Spans: []trace.Latency{{Pair: "gousdt_calls:*"}}}})
				check := func(name string, err error) {
					if err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("after %d parts of %v: %s: %v", part, longest, name, err)
					}
				}
				var second sync.WaitGroup
				if part > 0 {
					delay := longest * time.Duration(part-1) / time.Duration(parts)
					second.Go(func() {
						time.Sleep(delay)
						check(test.second.name, test.second.do(s, a))
					})
				}
				began := time.Now()
				check(test.first.name, test.first.do(s, a))
				longest = max(longest, time.Since(began))
				second.Wait()
				qt.Check(t, qt.IsNil(s.Close()))
				qt.Check(t, qt.HasLen(s.Attachments(), 0))
			}
		})
	}
}

// Once the session is detached or closed nothing is attached, nor will be, also
// by a call of Attach that has come as far as the kernel.
func TestClosingWaitsForAttach(t *testing.T) {
	process := start(t, "target-pie")
	for name, end := range map[string]func(*trace.Session) error{
		"Close": (*trace.Session).Close, "Detach": (*trace.Session).Detach,
	} {
		t.Run(name, func(t *testing.T) {
			for range 20 {
				s := newSession(t, &trace.SessionOptions{Events: &trace.EventOptions{}})
				attaching, ended := make(chan struct{}), make(chan error, 1)
				var once sync.Once
				go func() {
					_, err := s.Attach(usdt.Target{Path: process.path, PID: process.PID},
						&usdt.AttachOptions{SiteCookie: func(usdt.Site) uint64 {
							once.Do(func() { close(attaching) })
							return 0
						}})
					ended <- err
				}()
				<-attaching
				qt.Assert(t, qt.IsNil(end(s)))
				for isOver := false; !isOver; {
					select {
					case err := <-ended:
						if err != nil {
							qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
						}
						isOver = true
					default:
					}
					qt.Assert(t, qt.Equals(process.Semaphore("counted"), 0))
				}
			}
		})
	}
}
