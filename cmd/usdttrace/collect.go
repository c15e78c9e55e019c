// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gousdt/gousdt/trace"
)

// printer prints on standard output, for people or for programs. Errors of
// writing are told by the output.
type printer interface {
	event(*trace.Event)
	rows(*aggregation, *trace.Snapshot)
	summary(*summary)
}

func newPrinter(t *tracer) printer {
	if t.options.json {
		return &jsonPrinter{tracer: t, out: t.out}
	}
	return &textPrinter{tracer: t, out: t.out, style: newStyle(t.out.colours)}
}

// collect prints what comes until everything is detached, and all that has been
// sent by then.
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
		defer t.end() // where it fails
		done <- t.collectEvents(func(e *trace.Event) { t.samples.add(e, t.stackOf(e)) })
	}()
	err := t.collectRows()
	t.end()
	return errors.Join(err, <-done)
}

// collectEvents takes events until everything is detached.
func (t *tracer) collectEvents(take func(*trace.Event)) error {
	warned := false
	// It ends when everything is detached and read.
	for event, err := range t.session.Events(context.Background()) {
		var lost *trace.LostError
		switch {
		case errors.As(err, &lost):
			if !warned {
				warned = true
				advice := "--buffer, --where and --count"
				if t.options.unwind > 0 {
					advice = "--unwind fp, --buffer and --where"
				}
				t.messages.warn("events are being lost, because the ring buffer is full (see %s)", advice)
			}
			continue
		case err != nil:
			return err
		}
		n := t.events.Add(1)
		take(event)
		if t.out.failed() || n == uint64(t.options.maxEvents) {
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
			if t.out.failed() {
				return nil
			}
		case <-t.ended:
			return nil
		}
	}
}

// printRows prints what hits have come to, since it was called last if that is
// at intervals.
func (t *tracer) printRows() error {
	for i, a := range t.asked {
		if !a.printed() {
			continue
		}
		snapshot, err := t.session.Snapshot(i)
		if err != nil {
			return err
		}
		if t.stacks != nil {
			t.stacks.Refresh()
		}
		since := snapshot
		if a.earlier != nil {
			since = snapshot.Since(a.earlier)
		}
		if t.options.interval > 0 {
			a.earlier = snapshot
		}
		if t.options.interval == 0 || len(since.Rows) > 0 {
			t.printer.rows(a, since)
		}
	}
	return nil
}

// summary is what it all came to.
type summary struct {
	events uint64 // or hits that were aggregated
	losses trace.Losses
	sites  int
	files  int
	mode   string
	took   time.Duration
	costs  *costs // nil unless asked for
}

// report prints what is known at the end.
func (t *tracer) report() error {
	s := &summary{mode: t.session.Mode().String(), took: t.took}
	s.sites, s.files = t.targets.watched()
	if s.sites == 0 {
		return nil
	}
	if t.options.aggregates() {
		if err := t.printRows(); err != nil {
			return err
		}
		s.events = t.events.Load() // of which a profile is made
		if t.samples != nil {
			if err := t.writeSamples(); err != nil {
				return err
			}
		}
		for i, a := range t.asked {
			snapshot, err := t.session.Snapshot(i)
			if err != nil {
				return err
			}
			var hits uint64
			for _, row := range snapshot.Rows {
				hits += row.Count
			}
			s.events = max(s.events, hits)
			if a.kind == kindProfile {
				if err := t.writeProfile(a, snapshot); err != nil {
					return err
				}
			}
		}
	} else {
		s.events = t.events.Load()
	}
	var err error
	if s.losses, err = t.session.Losses(); err != nil {
		return err
	}
	if t.samples != nil {
		s.losses.Unreadable += t.samples.unreadable
	}
	if t.options.stats {
		s.costs = &t.costs
	}
	t.printer.summary(s)
	if t.out.flush() != nil {
		return nil // it is told at the end
	}
	t.messages.print(s.text())
	return nil
}

// text returns the summary for people.
func (s *summary) text() string {
	text := fmt.Sprintf("%s, %d lost; %s", plural(int(s.events), "event"), s.losses.Events, plural(s.sites, "site"))
	if s.files != 1 {
		text += " in " + plural(s.files, "file")
	}
	text += fmt.Sprintf("; %s; %s\n", s.mode, formatDuration(float64(s.took)))
	for _, loss := range []struct {
		n    uint64
		what string
	}{
		{s.losses.Keys, "not aggregated: there was no room for more keys"},
		{s.losses.Unreadable, "not aggregated: a value or key could not be read"},
		{s.losses.Starts, "not measured: there was no room for more starts"},
		{s.losses.Unmatched, "not measured: ends without a start"},
	} {
		if loss.n > 0 {
			text += fmt.Sprintf("%d %s\n", loss.n, loss.what)
		}
	}
	if s.costs != nil {
		text += s.costs.text()
	}
	return text
}

var _ io.Writer = (*output)(nil)
