// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/watch"
)

// A WatchSession is a session for which a watch attaches probes.
type WatchSession struct {
	Session *Session

	// Patterns pick the probes: those that match any of them, or all probes if
	// there is no pattern.
	Patterns []elfnote.Pattern

	// OptionsFor, if set, returns the options of each attachment, as
	// [watch.Program].OptionsFor does. With a Cookie or SiteCookie for each
	// file or process, events, filters and aggregations can tell them apart.
	OptionsFor func(*proc.ProcessFile) usdt.AttachOptions

	// Name, if set, begins the text of errors about this session.
	Name string
}

// WatchSessions watches probes for one session or more, wherever a process maps
// a file that has such probes. It begins with the first Sync, SyncAll or Run.
// It ends with Close, and as soon as one of the sessions is detached or closed.
// The processes are scanned once for all sessions, and files are read once.
//
// The files that a scan finds are attached session by session, in their order.
// A file that cannot be attached to one of them does not affect the others.
// Sites that cannot be attached are skipped: [Attachment.Skipped] lists them.
// Limits, later tries and calls of changed are as for [watch.New].
//
// The error wraps [os.ErrClosed] if a session is closed or detached. PerProcess
// needs a /proc of this process's own PID namespace.
func WatchSessions(
	opts *watch.Options, changed func(*watch.Changes[*Attachment]), sessions ...WatchSession,
) (*watch.Watch, error) {
	if len(sessions) == 0 {
		return nil, errors.New("a watch needs at least one WatchSession")
	}
	a := &sessionAttacher{sessions: slices.Clone(sessions)}
	var patterns [][]elfnote.Pattern
	for i, s := range sessions {
		if s.Session == nil || s.Session.life.watches == nil { // or a zero value
			return nil, fmt.Errorf("WatchSession %d has no Session", i)
		}
		patterns = append(patterns, slices.Clone(s.Patterns))
	}
	w, err := watch.Of(opts, changed, a, patterns...)
	if err != nil {
		return nil, err
	}
	a.watch = w
	for _, of := range a.sessions {
		life := &of.Session.life
		if err := life.before(detaching, func() error {
			life.watched(w, true)
			return nil
		}); err != nil {
			a.Closed()
			return nil, err
		}
	}
	return w, nil
}

type sessionAttacher struct {
	sessions []WatchSession
	watch    *watch.Watch
}

func (a *sessionAttacher) AttachPart(
	n int, sel *usdt.Selection, found *proc.ProcessFile, process proc.Process,
) (*Attachment, error) {
	s := &a.sessions[n]
	var options usdt.AttachOptions
	if s.OptionsFor != nil {
		options = s.OptionsFor(found)
	}
	return s.Session.attachRest(sel, found.Path, process, &options)
}

// Descriptors counts those of links and programs. Perf events have links of
// their own.
func (a *sessionAttacher) Descriptors(attached *Attachment) int {
	n := len(attached.programs) + len(attached.links)
	for _, l := range attached.links {
		n += 2 * l.PerfEvents()
	}
	return n
}

func (a *sessionAttacher) Detach(attachments []*Attachment) error { return closeAll(attachments...) }

func (a *sessionAttacher) Explain(n int, err *watch.Error) error {
	if a.sessions[n].Name != "" {
		return fmt.Errorf("%s: %w", a.sessions[n].Name, err)
	}
	return err
}

// Closed makes the sessions forget the watch.
func (a *sessionAttacher) Closed() {
	for _, s := range a.sessions {
		s.Session.life.watched(a.watch, false)
	}
}
