// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A call while the session is closed, at whatever moment, succeeds or says that
// the session is closed. Nothing is left in the kernel.
func TestSessionIsClosedAtAnyTime(t *testing.T) {
	process := startCaller(t, copyOf(t, "calls"))
	type action struct {
		name string
		do   func(*trace.Session, *trace.Aggregator) error
	}
	attach := action{"Attach", func(s *trace.Session, _ *trace.Aggregator) error {
		_, err := s.Attach(usdt.Target{Path: process.path, PID: process.pid}, nil,
			elfnote.MustParsePattern("gousdt_calls:outer*"))
		return err
	}}
	watching := action{"Watch", func(s *trace.Session, _ *trace.Aggregator) error {
		w, err := s.Watch(&watch.Options{Filter: only(process.path)}, nil)
		if err != nil {
			return err
		}
		return errors.Join(w.SyncAll(t.Context()), w.Close())
	}}
	snapshot := action{"Snapshot", func(s *trace.Session, a *trace.Aggregator) error {
		_, err := a.Snapshot()
		_, lost := s.Losses()
		_, cost := s.Stats()
		return errors.Join(err, lost, cost)
	}}
	detach := action{"Detach", func(s *trace.Session, _ *trace.Aggregator) error { return s.Detach() }}
	closing := action{"Close", func(s *trace.Session, _ *trace.Aggregator) error { return s.Close() }}

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
				a := trace.NewAggregator(trace.Aggregation{Value: "arg0", Min: true, By: []string{"pid"}})
				s := newSession(t, &trace.SessionOptions{Mode: test.mode,
					Aggregators: []*trace.Aggregator{a},
					Events: &trace.EventOptions{
						Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("gousdt_calls:*")}}}})
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
