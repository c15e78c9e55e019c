// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/usdt"
)

// WatchChanges are what a Watch has changed, and what it could not.
type WatchChanges struct {
	// Attached are closed by the Watch.
	Attached []*Attachment
	// Detached are closed together as soon as the function that is told of them
	// has returned, unless the session has detached everything. Their Close
	// waits until that is done.
	Detached []*Attachment
	// Missed are the files of processes that ended before the files were
	// attached, with PerProcess.
	Missed []*proc.ProcessFile
	// Errors are as in [usdt.WatchChanges].
	Errors []error
}

// A WatchSession is a session that a Watch feeds, and the probes that it is
// for.
type WatchSession struct {
	Session *Session

	// Patterns pick the probes: those that match any of them, or all probes if
	// there is no pattern.
	Patterns []elfnote.Pattern

	// OptionsFor, if set, returns the options of each attachment, as
	// [usdt.WatchProgram].OptionsFor does. With a Cookie or SiteCookie for each
	// file or process, events, filters and aggregations can tell them apart.
	OptionsFor func(*proc.ProcessFile) usdt.AttachOptions

	// Name, if set, begins the text of errors about this session.
	Name string
}

// A Watch feeds sessions with the probes that match their patterns, in whatever
// processes come and go. Its methods are safe for concurrent use.
type Watch struct {
	driver   *watchDriver
	follower *follow.Follower[*watchedFile, *Attachment]
}

// WatchSessions watches probes for one session or more, wherever a process maps
// a file that has such probes. It begins with the first Sync, SyncAll or Run.
// It ends with Close, and as soon as one of the sessions is detached or closed.
// The processes are scanned once for all sessions, and files are read once.
//
// What a scan finds is attached session by session, in their order. A file that
// cannot be attached to one of them does not affect the others. Sites that
// cannot be attached are skipped: [Attachment.Skipped] lists them. What makes
// room for what, and what is tried again, is as for [usdt.Manager.Watch], and
// so is changed.
//
// The error wraps [os.ErrClosed] if a session is closed or detached. Another
// error says that with PerProcess the PIDs of FS have to be those of this
// process's own PID namespace.
func WatchSessions(
	opts *usdt.WatchOptions, changed func(*WatchChanges), sessions ...WatchSession,
) (*Watch, error) {
	if opts == nil {
		opts = &usdt.WatchOptions{}
	}
	if len(sessions) == 0 {
		return nil, errors.New("watch: there is no session: give one WatchSession or more")
	}
	for i, s := range sessions {
		if s.Session == nil {
			return nil, fmt.Errorf("watch: the session of WatchSession %d is nil", i)
		}
	}
	d := newWatchDriver(opts, changed, sessions)
	follower, err := follow.New(d, follow.Options{
		Proc: procwatch.WatcherOptions{FS: opts.FS, Filter: opts.Filter,
			Handler: procwatch.Report(opts.Mapped), BeforePass: opts.BeforePass},
		Parts: len(sessions), NeedsPIDs: opts.PerProcess, Linger: opts.Linger,
		Limits: follow.Limits(opts.Limits),
	}, d.patterns...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w: watch without PerProcess", err)
	}
	w := &Watch{driver: d, follower: follower}
	for i := range d.sessions {
		if !d.sessions[i].Session.keepWatch(w) {
			w.forget()
			return nil, sys.ClosedError("session")
		}
	}
	return w, nil
}

// forget has the sessions forget the Watch.
func (w *Watch) forget() {
	for i := range w.driver.sessions {
		w.driver.sessions[i].Session.forgetWatch(w)
	}
}

// Run scans all processes now and at each interval, and in between those that
// the kernel reports to have started, executed or mapped something, until the
// context or the Watch ends. It returns nil then, and an error if the processes
// cannot be listed the first time.
//
// An interval must be positive; ten seconds are a good one. If the kernel
// reports what processes do, it may be longer: package proc says what only
// scans of all processes find.
func (w *Watch) Run(ctx context.Context, interval time.Duration) error {
	return w.follower.Run(ctx, interval)
}

// Sync scans one process, whatever is known about it: call it when something is
// known to have happened. It is no error if the process does not exist. Other
// errors say what went wrong with the process or with files of it. It wraps
// [proc.ErrBlocked] if the process is set aside, and [os.ErrClosed] when the
// Watch has ended. Errors of attaching are in [WatchChanges].
func (w *Watch) Sync(pid int) error { return w.follower.Sync(pid) }

// SyncAll scans all processes, each as thoroughly as it needs. The error is
// that of listing the processes, or [os.ErrClosed] when the Watch has ended.
// What is wrong with single ones is in [WatchChanges], as are errors of
// attaching.
func (w *Watch) SyncAll() error { return w.follower.SyncAll() }

// Stats returns the numbers of the watch.
func (w *Watch) Stats() usdt.WatchStats { return usdt.WatchStats(w.follower.Stats()) }

// Stop ends Run, and nothing more is attached. It waits for neither. What is
// attached stays attached until Close.
func (w *Watch) Stop() { w.follower.Stop() }

// Close detaches everything, all at a time, and waits until that is done and
// until no process is scanned any more. Errors are those of Attachment.Close.
// It is safe to call it again.
func (w *Watch) Close() error {
	err := w.follower.Close()
	w.forget()
	return err
}

// watchDriver attaches files to sessions where a follow.Follower finds a place
// for them. The parts of a file are its probes for each session.
type watchDriver struct {
	sessions []WatchSession
	patterns []elfnote.Pattern // of all sessions together
	opts     usdt.WatchOptions
	changed  func(*WatchChanges)
}

func newWatchDriver(
	opts *usdt.WatchOptions, changed func(*WatchChanges), sessions []WatchSession,
) *watchDriver {
	d := &watchDriver{sessions: slices.Clone(sessions), opts: *opts, changed: changed}
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
func (d *watchDriver) Open(pair *procwatch.ProcessFile) (*watchedFile, error) {
	sel, err := usdt.Select(usdt.Target{ProcessFile: pair, MaxSites: d.fileSites()},
		d.patterns...)
	if err != nil {
		return nil, err
	}
	file := &watchedFile{selection: sel, parts: make([]filePart, len(d.sessions))}
	for i := range d.sessions {
		part, err := usdt.Select(usdt.Target{Selection: sel}, d.sessions[i].Patterns...)
		if errors.As(err, new(*usdt.NotFoundError)) {
			err = nil // it has probes of other sessions
		}
		file.parts[i] = filePart{part, err}
	}
	return file, nil
}

// watchedFile is a file whose sites have been checked.
type watchedFile struct {
	selection *usdt.Selection
	parts     []filePart // by session
}

// filePart is the sites of a file for one session. Without a selection there
// are none.
type filePart struct {
	*usdt.Selection       // shares the file's
	err             error // the file has probes for the session, but none that can be attached
}

func (d *watchDriver) fileSites() int { return follow.Limits(d.opts.Limits).OfFile() }

func (d *watchDriver) Release(file *watchedFile) { file.selection.Close() }

func (d *watchDriver) PerProcess(*procwatch.CachedFile) bool { return d.opts.PerProcess }

func (d *watchDriver) Attach(
	n int, file *watchedFile, pair *procwatch.ProcessFile, pid int,
) (*Attachment, bool, error) {
	part := file.parts[n]
	if part.Selection == nil {
		return nil, false, part.err
	}
	process := pair.Process
	if pid == 0 {
		process = proc.Process{}
	}
	a, err := d.attach(&d.sessions[n], part.ForPID(pid), pair, process)
	return a, err == nil, err
}

func (d *watchDriver) attach(
	s *WatchSession, sel *usdt.Selection, pair *procwatch.ProcessFile, process proc.Process,
) (*Attachment, error) {
	var options usdt.AttachOptions
	if s.OptionsFor != nil {
		options = s.OptionsFor(pair.View())
	}
	return s.Session.attachSelection(sel, pair.Path, process, &options, d.fileSites())
}

// Sites counts what the kernel attaches for a part.
func (d *watchDriver) Sites(n int, file *watchedFile) int {
	if file.parts[n].Selection == nil {
		return 0
	}
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

func (d *watchDriver) Detach(attachments []*Attachment) error { return closeAll(attachments...) }

func (d *watchDriver) Retry(err error) follow.When { return follow.Classify(err) }

func (d *watchDriver) Explain(n int, pair *procwatch.ProcessFile, err error) error {
	err = &follow.WatchError{Path: pair.Path, Process: pair.Process, Err: follow.InWatch(err)}
	if n != follow.WholeFile && d.sessions[n].Name != "" {
		return fmt.Errorf("%s: %w", d.sessions[n].Name, err)
	}
	return err
}

func (d *watchDriver) Changed(c *follow.Changes[*Attachment]) {
	if d.changed == nil {
		return
	}
	told := &WatchChanges{Attached: c.Attached, Detached: c.Detached, Errors: c.Errors}
	for _, pair := range c.Missed {
		told.Missed = append(told.Missed, pair.View())
	}
	d.changed(told)
}
