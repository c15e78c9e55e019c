// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// Part is the part of a watch that attaches the session to the probes that
// match any of the patterns, or to all probes if there is no pattern:
//
//	w, err := watch.New(nil, report, session.Part(patterns...))
//
// The watch ends with Close, and as soon as the session is detached or closed.
// Closing the session closes the watch. Sites that cannot be attached are
// skipped: [Attachment.Skipped] lists them.
func (s *Session) Part(patterns ...elfnote.Pattern) watch.Part[*Attachment] {
	return watch.Part[*Attachment]{
		Patterns: patterns,
		Attach: func(
			found *proc.ProcessFile, sites *usdt.Selection, opts *usdt.AttachOptions,
		) (*Attachment, error) {
			var process proc.Process
			if sites.PID() != 0 {
				process = found.Process
			}
			return s.attachSelection(sites, found.Path, process, opts)
		},
		Detach: func(attachments []*Attachment) error { return closeAll(attachments...) },
		// Perf events have links of their own.
		Descriptors: func(attached *Attachment) int {
			n := len(attached.programs) + len(attached.links)
			for _, l := range attached.links {
				n += 2 * l.PerfEvents()
			}
			return n
		},
		Begin: func(w *watch.Watch) (end func(), err error) {
			if s == nil || s.life.watches == nil { // or a zero value
				return nil, errors.New("there is no session to watch with: see trace.New")
			}
			return func() { s.life.watched(w, false) }, s.life.before(detaching, func() error {
				s.life.watched(w, true)
				return nil
			})
		},
	}
}
