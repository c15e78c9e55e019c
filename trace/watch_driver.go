// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// watchDriver attaches files to sessions where a follow.Follower finds a place
// for them. The parts of a file are its probes for each session.
type watchDriver struct {
	sessions []WatchSession
	patterns []elfnote.Pattern // of all sessions together
	opts     WatchOptions
}

func newWatchDriver(opts *WatchOptions, sessions []WatchSession) *watchDriver {
	d := &watchDriver{sessions: slices.Clone(sessions), opts: *opts}
	all := false
	for i := range d.sessions {
		s := &d.sessions[i]
		s.Patterns = slices.Clone(s.Patterns)
		d.patterns = append(d.patterns, s.Patterns...)
		all = all || len(s.Patterns) == 0
	}
	if all {
		d.patterns = nil
	}
	return d
}

// Open checks the sites of a file, once for all processes and all sessions.
func (d *watchDriver) Open(pair *proc.ProcessFile) (*watchedFile, error) {
	options := usdt.SelectOptions{MaxSites: d.fileSites()}
	sel, err := usdt.Select(usdt.Target{ProcessFile: pair}, &options, d.patterns...)
	if err != nil {
		return nil, err
	}
	file := &watchedFile{selection: sel, parts: []*usdt.Selection{sel}}
	if len(d.sessions) > 1 {
		file.parts = file.parts[:0]
		for i := range d.sessions {
			file.parts = append(file.parts, sel.Matching(d.sessions[i].Patterns...))
		}
	}
	return file, nil
}

// watchedFile is a file whose sites have been checked.
type watchedFile struct {
	selection *usdt.Selection
	parts     []*usdt.Selection // of selection, by session
}

func (d *watchDriver) fileSites() int {
	return follow.OrDefault(d.opts.Limits.FileSites, follow.DefaultFileSites)
}

func (d *watchDriver) Release(file *watchedFile) { file.selection.Close() }

func (d *watchDriver) PerProcess(*proc.CachedFile) bool { return d.opts.PerProcess }

func (d *watchDriver) Attach(
	n int, file *watchedFile, pair *proc.ProcessFile, pid int,
) (*Attachment, bool, error) {
	part := file.parts[n]
	if part.Len() == 0 {
		if skipped, _ := part.Skipped(); len(skipped) > 0 {
			return nil, false, skipped[0]
		}
		return nil, false, nil // the probes of other sessions
	}
	process := pair.Process
	if pid == 0 {
		process = proc.Process{}
	}
	a, err := d.attach(d.sessions[n].Session, part.ForPID(pid), pair, process)
	return a, err == nil, err
}

func (d *watchDriver) attach(
	s *Session, sel *usdt.Selection, pair *proc.ProcessFile, process proc.Process,
) (*Attachment, error) {
	var options usdt.AttachOptions
	if d.opts.OptionsFor != nil {
		options = d.opts.OptionsFor(pair)
	}
	options.MaxSites = d.fileSites()
	return s.attachSelection(sel, pair.Path, process, &options)
}

// Sites counts what the kernel attaches for a part.
func (d *watchDriver) Sites(n int, file *watchedFile) int {
	sites := file.parts[n].Len()
	for _, site := range file.parts[n].Sites() {
		if site.SemaphoreOffset != 0 {
			sites += follow.SemaphoreSites - 1
		}
	}
	return sites
}

// Descriptors counts those of links and programs. Perf events have links of
// their own.
func (d *watchDriver) Descriptors(a *Attachment) int {
	n := len(a.programs) + len(a.links)
	for _, l := range a.links {
		n += 2 * l.PerfEvents()
	}
	return n
}

func (d *watchDriver) Detach(attachments []*Attachment) error { return CloseAll(attachments...) }

func (d *watchDriver) Retry(err error) follow.When { return follow.Classify(err) }

func (d *watchDriver) Explain(n int, pair *proc.ProcessFile, err error) error {
	err = &usdt.WatchError{Path: pair.Path, Process: pair.Process, Err: limitOf(err)}
	if n != follow.WholeFile && d.sessions[n].Name != "" {
		return fmt.Errorf("%s: %w", d.sessions[n].Name, err)
	}
	return err
}

// limitOf explains a limit of the watch in the words of its options.
func limitOf(err error) error {
	var file *usdt.LimitError
	if errors.As(err, &file) && file.Option == "SelectOptions.MaxSites" {
		limit := *file
		limit.Option = "Limits.FileSites"
		return elffile.TooLarge(&limit)
	}
	var full *follow.FullError
	if !errors.As(err, &full) {
		return err
	}
	limit, option := full.Option()
	return &usdt.LimitError{Limit: limit, Option: option, Capacity: full.Capacity,
		InUse: full.InUse, Needed: full.Needed}
}

func (d *watchDriver) Changed(c *follow.Changes[*Attachment]) {
	if d.opts.Changed != nil {
		d.opts.Changed(&WatchChanges{Attached: c.Attached, Detached: c.Detached, Missed: c.Missed,
			Errors: c.Errors})
	}
}
