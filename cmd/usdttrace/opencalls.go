// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/gousdt/gousdt/trace"
)

// openFor is how long a call has been going on that --latency lists. --slow has
// its own limit.
const openFor = time.Second

// measuresCalls reports whether there are calls that can be open.
func (o *options) measuresCalls() bool { return o.slow != nil || o.latency != nil }

// askOpen asks for the calls that go on.
func (t *tracer) askOpen() []*trace.Event {
	if !t.options.measuresCalls() {
		return nil
	}
	longer := openFor
	if t.options.slow != nil {
		longer = 0 // the filter has the limit
	}
	open, err := t.session.OpenCalls(longer)
	if err != nil {
		t.warnFailed(err)
	}
	return open
}

// printOpen prints calls that go on, those that have been for longest.
func (t *tracer) printOpen(open []*trace.Event) {
	if t.stacks != nil {
		t.stacks.Refresh()
	}
	t.printer.open(open)
}

// watchQuit returns a channel that has a value for each SIGQUIT, which asks for
// the calls that go on. Without calls, the signal ends this process, as usual.
func (t *tracer) watchQuit() (asked <-chan os.Signal, stop func()) {
	if !t.options.measuresCalls() {
		return nil, func() {}
	}
	quit := make(chan os.Signal, 1)
	signal.Notify(quit, syscall.SIGQUIT)
	return quit, func() { signal.Stop(quit) }
}

// pauses returns a channel that has a value at each interval of --slow.
func (t *tracer) pauses() (ticks <-chan time.Time, stop func()) {
	if t.options.interval == 0 || t.options.aggregates() {
		return nil, func() {}
	}
	ticker := time.NewTicker(t.options.interval)
	return ticker.C, ticker.Stop
}

// collectCalls takes events until everything is detached, and in between prints
// the calls that go on whenever that is asked for: by one goroutine, so that
// lines do not mix.
func (t *tracer) collectCalls(take func(*trace.Event)) error {
	ticks, stop := t.pauses()
	defer stop()
	for {
		ctx, pause := context.WithCancel(context.Background())
		due, done := false, make(chan struct{})
		go func() {
			defer close(done)
			select {
			case <-ticks:
				due = true
			case <-t.quit:
				due = true
			case <-ctx.Done():
			}
			pause()
		}()
		ended, err := t.collectEvents(ctx, take)
		pause()
		<-done
		if err != nil || ended || !due {
			return err
		}
		t.printOpen(t.askOpen())
	}
}
