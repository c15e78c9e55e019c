// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/gousdt/gousdt/trace"
)

// collect prints events and rows until everything is detached, and what has
// been sent by then.
func (t *tracer) collect() error {
	defer t.end()
	switch {
	case !t.options.aggregates():
		return t.collectEvents(t.printer.event)
	case t.samples == nil:
		return t.collectRows()
	}
	done := make(chan error, 1)
	go func() {
		defer t.end() // if it fails
		done <- t.collectEvents(func(e *trace.Event) { t.samples.add(e, t.stackOf(e)) })
	}()
	err := t.collectRows()
	t.end()
	return errors.Join(err, <-done)
}

// collectEvents takes events until everything is detached.
func (t *tracer) collectEvents(take func(*trace.Event)) error {
	warned, missing := false, uint64(0)
	// It ends when everything is detached and read.
	for event, err := range t.session.Events(context.Background()) {
		if err != nil {
			// Not before: the variable is an allocation.
			var lost *trace.LostError
			if !errors.As(err, &lost) {
				return err
			}
			missing += lost.Events
			if !warned && missing > t.before.Events { // others came while sites were attached
				warned = true
				advice := "--buffer, --where and --count"
				if t.options.unwind > 0 {
					advice = "--unwind fp, --buffer and --where"
				}
				t.messages.Warn("events are being lost, because the ring buffer is full (see %s)",
					advice)
			}
			continue
		}
		if t.isOutside(event) {
			continue
		}
		n := t.events.Add(1)
		t.weight.Add(event.Weight)
		take(event)
		if t.out.Err() != nil || n == uint64(t.options.maxEvents) {
			return nil
		}
	}
	return nil
}

func (t *tracer) collectRows() error {
	var ticks <-chan time.Time
	if t.options.interval > 0 {
		ticker := time.NewTicker(t.options.interval)
		defer ticker.Stop()
		ticks = ticker.C
	}
	for {
		select {
		case <-ticks:
			if err := t.printRows(); err != nil {
				return err
			}
			if t.out.Err() != nil {
				return nil
			}
		case <-t.ended:
			return nil
		}
	}
}

// startMeasuring forgets what has come while sites were attached, one after the
// other: rates would be too high, and probes could not be compared. A command
// has not gone on before all of them were.
func (t *tracer) startMeasuring() error {
	if !t.start.IsZero() {
		return nil
	}
	t.before = t.askLosses()
	t.start, t.from = time.Now(), monotonic()
	// Each begins anew when its Take is called, which then waits for the
	// kernel, for 50 ms on a busy machine: all together begin now.
	var wait sync.WaitGroup
	errs := make([]error, len(t.asked))
	for i, a := range t.asked {
		if a.aggregator != nil {
			wait.Go(func() { _, errs[i] = a.aggregator.Take() })
		}
	}
	wait.Wait()
	return errors.Join(append(errs, t.before.err)...)
}

// printRows prints what hits have come to: with --interval, since the last
// call.
func (t *tracer) printRows() error {
	for _, a := range t.asked {
		if !a.printed() {
			continue
		}
		snapshot, err := t.read(a)
		if err != nil {
			return err
		}
		if t.stacks != nil {
			t.stacks.Refresh()
		}
		if t.options.interval == 0 || len(snapshot.Rows) > 0 || snapshot.Other.Count > 0 {
			snapshot = t.mergeStacks(snapshot)
			t.sortRows(a, snapshot)
			if t.options.top > 0 {
				snapshot = snapshot.Top(t.options.top)
			}
			t.printer.rows(a, snapshot)
		}
	}
	return nil
}

// read returns what hits have come to: with --interval, since the last call.
func (t *tracer) read(a *aggregation) (*trace.Snapshot, error) {
	anew := t.options.interval > 0 && a.printed()
	if !anew {
		a.hits, a.others, a.overflow = 0, 0, 0
	}
	var snapshot *trace.Snapshot
	var err error
	switch {
	case a.rows != nil:
		snapshot = a.rows.snapshot(anew)
	case anew:
		snapshot, err = a.aggregator.Take()
	default:
		snapshot, err = a.aggregator.Snapshot()
	}
	if err != nil {
		return nil, err
	}
	for i := range snapshot.Rows {
		a.hits += snapshot.Rows[i].Count
	}
	a.hits += snapshot.Other.Count
	a.others += snapshot.Other.Count
	a.overflow += snapshot.Overflow
	if (t.command != nil || a.rows != nil) && t.start.After(snapshot.Start) {
		snapshot.Start = t.start
	}
	select {
	case <-t.ended:
		// A row at an interval may have been printed while all was detached.
		if end := t.start.Add(t.took); snapshot.Time.After(end) && end.After(snapshot.Start) {
			snapshot.Time = end
		}
	default:
	}
	return snapshot, nil
}
