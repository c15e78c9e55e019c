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
)

// interleaving has a second function run at one place of the first: before the
// first takes or gives back one of the session's locks. It runs to its end, or
// until it waits for the first.
type interleaving struct {
	at     int // number of the place
	second func() error

	mu      sync.Mutex
	passed  int // places
	begun   bool
	ended   chan struct{}
	waiting chan struct{}
	err     error
}

// place is called before each step of a lock.
func (i *interleaving) place() {
	i.mu.Lock()
	here := !i.begun && i.passed == i.at
	i.passed++
	i.begun = i.begun || here
	i.mu.Unlock()
	if !here {
		return
	}
	go func() {
		defer close(i.ended)
		i.err = i.second()
	}()
	select {
	case <-i.ended:
	case <-i.waiting:
	case <-time.After(100 * time.Millisecond): // it waits for something else than a lock
	}
}

// wait is called where a lock has to be waited for.
func (i *interleaving) wait() {
	select {
	case i.waiting <- struct{}{}:
	default:
	}
}

// placedLock is a lock of a session.
type placedLock struct {
	*interleaving
	lock sync.RWMutex
}

func (l *placedLock) Lock() {
	l.place()
	if !l.lock.TryLock() {
		l.wait()
		l.lock.Lock()
	}
}

func (l *placedLock) RLock() {
	l.place()
	if !l.lock.TryRLock() {
		l.wait()
		l.lock.RLock()
	}
}

func (l *placedLock) Unlock() {
	l.place()
	l.lock.Unlock()
}

func (l *placedLock) RUnlock() {
	l.place()
	l.lock.RUnlock()
}

// Whatever happens while a session is closed, and wherever: it is done, or says
// that the session is closed, and nothing is left behind.
func TestSessionIsClosedAtEachStep(t *testing.T) {
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
	watch := action{"Watch", func(s *trace.Session, _ *trace.Aggregator) error {
		w, err := s.Watch(&usdt.WatchOptions{Filter: only(process.path)}, nil)
		if err != nil {
			return err
		}
		return errors.Join(w.SyncAll(), w.Close())
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
		{usdt.ModeAuto, watch, closing},
		{usdt.ModeAuto, closing, watch},
		{usdt.ModeAuto, snapshot, closing},
		{usdt.ModeAuto, closing, snapshot},
		{usdt.ModeAuto, detach, closing},
	} {
		name := fmt.Sprintf("%s, %s during %s", test.mode, test.second.name, test.first.name)
		t.Run(name, func(t *testing.T) {
			for at, all := 0, false; !all; at++ {
				a := trace.NewAggregator(trace.Aggregation{Value: "arg0", Min: true, By: []string{"pid"}})
				s := newSession(t, &trace.SessionOptions{Mode: test.mode,
					Aggregators: []*trace.Aggregator{a},
					Events: &trace.EventOptions{
						Spans: []trace.Latency{{Pair: elfnote.MustParsePairPattern("gousdt_calls:*")}}}})
				i := &interleaving{at: at, ended: make(chan struct{}), waiting: make(chan struct{}, 1),
					second: func() error { return test.second.do(s, a) }}
				s.SetLocks(&placedLock{interleaving: i}, &placedLock{interleaving: i})
				check := func(name string, err error) {
					if err != nil && !errors.Is(err, os.ErrClosed) {
						t.Errorf("before step %d: %s: %v", at, name, err)
					}
				}
				check(test.first.name, test.first.do(s, a))
				i.mu.Lock()
				all = !i.begun
				i.begun = true
				i.mu.Unlock()
				if !all {
					<-i.ended
					check(test.second.name, i.err)
				}
				qt.Check(t, qt.IsNil(s.Close()))
				qt.Check(t, qt.HasLen(s.Attachments(), 0))
			}
		})
	}
}
