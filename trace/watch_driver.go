// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// watchDriver attaches files to a session where a follow.Follower finds a place
// for them.
type watchDriver struct {
	session  *Session
	patterns []elfnote.Pattern
	opts     WatchOptions
}

// Open checks the sites of a file, once for all processes.
func (d *watchDriver) Open(pair *proc.Pair) (*usdt.Selection, error) {
	options := usdt.SelectOptions{MaxSites: d.fileSites()}
	return usdt.Select(usdt.Target{Pair: pair}, &options, d.patterns...)
}

func (d *watchDriver) fileSites() int {
	return follow.OrDefault(d.opts.Limits.FileSites, follow.DefaultFileSites)
}

func (d *watchDriver) Release(sel *usdt.Selection) { sel.Close() }

func (d *watchDriver) PerProcess(*proc.CachedFile) bool { return d.opts.PerProcess }

func (d *watchDriver) Attach(_ int, sel *usdt.Selection, pair *proc.Pair, pid int) (*Attachment, bool, error) {
	process := pair.Process
	if pid == 0 {
		process = proc.Process{}
	}
	a, err := d.attach(sel.ForPID(pid), pair, process)
	return a, err == nil, err
}

func (d *watchDriver) attach(sel *usdt.Selection, pair *proc.Pair, process proc.Process) (*Attachment, error) {
	var options usdt.AttachOptions
	if d.opts.OptionsFor != nil {
		options = d.opts.OptionsFor(pair)
	}
	options.MaxSites = d.fileSites()
	return d.session.attachSelection(sel, pair.Path, process, &options)
}

// Sites counts what the kernel attaches.
func (d *watchDriver) Sites(_ int, sel *usdt.Selection) int {
	sites := sel.Len()
	for _, site := range sel.Sites() {
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

func (d *watchDriver) Explain(_ int, pair *proc.Pair, err error) error {
	return &usdt.WatchError{Path: pair.Path, Process: pair.Process, Err: limitOf(err)}
}

// limitOf explains a limit of the watch in the words of its options.
func limitOf(err error) error {
	var file *usdt.LimitError
	if errors.As(err, &file) && file.Option == "SelectOptions.MaxSites" {
		limit := *file
		limit.Option = "Limits.FileSites"
		return fmt.Errorf("%w: %w", elfnote.ErrTooLarge, &limit)
	}
	var full *follow.FullError
	if !errors.As(err, &full) {
		return err
	}
	limit, option := full.Option()
	return &usdt.LimitError{Limit: limit, Option: option, Capacity: full.Capacity, InUse: full.InUse, Needed: full.Needed}
}

func (d *watchDriver) Changed(c *follow.Changes[*Attachment]) {
	if d.opts.Changed != nil {
		d.opts.Changed(&WatchChanges{Attached: c.Attached, Detached: c.Detached, Missed: c.Missed, Errors: c.Errors})
	}
}
