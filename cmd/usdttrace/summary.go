// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"time"

	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
)

// maxOwnerLosses is of how many is said that their events were lost.
const maxOwnerLosses = 5

// summary is what it all came to.
type summary struct {
	events  uint64 // or hits that were aggregated
	sampled uint64 // events, whatever was aggregated
	weight  uint64 // how many hits these stand for
	losses  trace.Losses
	owners  []trace.OwnerLoss // whose events were lost

	others   uint64 // hits of keys that have no row
	overflow uint64 // those of them that came too fast
	maxKeys  int

	sites  int
	files  int
	mode   string
	took   time.Duration
	frames *stack.Counts // nil where no stacks are asked for
	costs  *costs        // nil unless asked for
}

// report prints what is known at the end.
func (t *tracer) report() error {
	s := &summary{mode: t.session.Mode().String(), took: t.took, sampled: t.events.Load(),
		weight: t.weight.Load()}
	s.sites, s.files = t.targets.watched()
	if s.sites == 0 {
		return nil
	}
	if t.options.aggregates() {
		if err := t.printRows(); err != nil {
			return err
		}
		s.events = t.events.Load() // of which a profile is made
		if t.samples != nil && t.samples.profile != nil {
			if err := t.writeProfiles(t.samples.profile); err != nil {
				return err
			}
		}
		for _, a := range t.asked {
			if !a.printed() {
				snapshot, err := t.read(a)
				if err != nil {
					return err
				}
				if err := t.writeProfiles(t.profileOf(a, snapshot)); err != nil {
					return err
				}
			}
			if a.rows == nil {
				s.events = max(s.events, a.hits)
			}
			s.others += a.others
			s.overflow += a.overflow
			s.maxKeys = a.maxKeys()
		}
	} else {
		s.events = t.events.Load()
	}
	if t.lost.err != nil {
		return t.lost.err
	}
	s.losses, s.owners = t.lost.Losses, t.lost.owners
	if t.samples != nil {
		s.losses.Unreadable += t.samples.unreadable
	}
	if t.stacks != nil {
		counts := t.stacks.Counts()
		s.frames = &counts
	}
	if t.options.stats {
		s.costs = &t.costs
	}
	if s.events == 0 {
		t.warnRelatives()
	}
	t.printer.summary(s)
	if t.out.Flush() != nil {
		return nil // trace returns the error
	}
	if !t.options.quiet {
		t.messages.Print(s.text())
		if s.events == 0 {
			for _, hint := range t.targets.whenFired() {
				t.messages.Print(hint + "\n")
			}
		}
	}
	return nil
}

// text returns the summary as human-readable text.
func (s *summary) text() string {
	text := fmt.Sprintf("%s, %d lost; %s", plural(int(s.events), "event"), s.losses.Events,
		plural(s.sites, "site"))
	if s.files != 1 {
		text += " in " + plural(s.files, "file")
	}
	text += fmt.Sprintf("; %s; %s\n", s.mode, formatDuration(float64(s.took)))
	for _, loss := range s.owners[:min(len(s.owners), maxOwnerLosses)] {
		text += fmt.Sprintf("of the lost events %s\n", loss)
	}
	for _, loss := range []struct {
		n    uint64
		what string
	}{
		{s.losses.NotSampled,
			fmt.Sprintf("hits not sampled: each event stands for those before it, on average for %.3g hits",
				float64(s.weight)/float64(max(s.sampled, 1)))},
		{s.losses.Processes, "descendants not watched: there were too many at a time"},
		{s.others,
			fmt.Sprintf("hits are of the less frequent keys in (other): there are more than %d (--max-keys)", s.maxKeys)},
		{s.overflow,
			"of these came too fast for the room in the kernel: some may be of keys with a row (--max-keys)"},
		{s.losses.Unreadable, "not aggregated: a value or key could not be read"},
		{s.losses.Starts, "not measured: there was no room for more starts"},
		{s.losses.Replaced, "not measured: starts without an end, as of calls that failed (PAIR|PROBE names another end)"},
		{s.losses.Unfinished, "not measured: calls that had not ended, or failed (PAIR|PROBE names another end)"},
		{s.losses.Unmatched, "not measured: ends without a start"},
	} {
		if loss.n > 0 {
			text += fmt.Sprintf("%d %s\n", loss.n, loss.what)
		}
	}
	if s.frames != nil && s.frames.NoFile+s.frames.NoFunction > 0 {
		text += fmt.Sprintf("%d of %d functions on stacks have no name: %d in no file, %d in files without symbols for them\n",
			s.frames.NoFile+s.frames.NoFunction, s.frames.Frames, s.frames.NoFile,
			s.frames.NoFunction)
	}
	if s.frames != nil && s.frames.CutStacks > 0 {
		text += fmt.Sprintf("%s cut: deeper, or costlier to unwind, than a limit allows\n",
			plural(int(s.frames.CutStacks), "stack"))
	}
	if s.costs != nil {
		text += s.costs.text()
	}
	return text
}
