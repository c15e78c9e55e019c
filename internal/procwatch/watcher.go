// SPDX-License-Identifier: BSD-2-Clause

// Package procwatch finds the files that processes execute, as they come and
// go, and which of them have USDT probes. A [Watcher] reports each
// [ProcessFile] when it appears and disappears, as [Changes]. The documentation
// of package proc says how, and how soon.
package procwatch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt/proc"
)

// WatcherOptions say which processes a [Watcher] scans, and have its handler.
// With the zero value, and with nil, it scans all processes of /proc and
// reports nothing. Filter, Patient and BeforePass are as package watch has
// them.
type WatcherOptions struct {
	// FS is the proc file system; "" is /proc.
	FS         procfs.FS
	Filter     func(proc.Process) bool
	Patient    bool
	BeforePass func()
	// Handler receives the files that have appeared and disappeared. It is
	// called by one goroutine at a time, the one that scans: by Sync,
	// Run or Close before they return, or by a goroutine of the watcher when a
	// process that was set aside has been scanned after all. It may take long.
	// It may call ProcessFiles and Stats, but none of the functions that call
	// it.
	Handler func(*Changes)
	// Record begins to record what processes do; nil asks the kernel.
	Record func() (Recorder, error)
}

// Watcher finds out which processes map files with certain probes, and reports
// when that changes. Several goroutines may call its methods at once, which
// scan one after the other.
type Watcher struct {
	WatcherOptions
	cache    *cache
	patience time.Duration // with the scan of a process
	// unanswered counts the scans that do not return.
	unanswered deadline.Unanswered

	// open ends when the watcher is stopped, so that no further process is
	// scanned.
	open context.Context
	stop context.CancelFunc

	// due gets a value, if it has none, when a process can be scanned that
	// could not be before.
	due chan struct{}

	views   sync.Pool
	running atomic.Int32 // calls of Run
	seed    maphash.Seed

	// scanning is held while processes are scanned and the handler runs.
	scanning deadline.InTurns
	// procDir is the directory of the file system. It stays open, so that
	// processes can be listed without a free descriptor.
	procDir *os.File

	// mu guards the turns, and the data of ProcessFiles and Stats. The
	// goroutine that scans holds it, but not while it waits for processes, nor
	// while the handler runs.
	mu        sync.Mutex
	turns     turns
	processes map[int]*watched
	told      map[int]*told       // the last report of the kernel
	unwanted  map[mappedFile]bool // files without wanted probes
	stats     WatcherStats
	isWaking  bool  // a timer is set for the processes whose files settle
	scan      *scan // the findings so far

	// reported has when something was reported, by an ownerError, or by the ID
	// of a file that cannot be read.
	reported map[any]time.Time
}

type watched struct {
	*known
	pairs []*ProcessFile
	pass  uint64

	// blocked is the abandoned scan that has not returned yet, or nil.
	blocked *task
	// due reports whether the process is to be scanned as soon as that is
	// possible: the scan has returned, and the allowance is not overdrawn.
	due       bool
	scanned   bool      // its mappings have been read
	settled   time.Time // it is to be scanned again then; zero if it is not
	allowance deadline.Allowance
	isPutOff  bool // it has been reported that the process is due
}

// hasSettled reports whether the process is to be scanned again because its
// files should be whole now.
func (p *watched) hasSettled(now time.Time) bool {
	return !p.settled.IsZero() && !p.settled.After(now)
}

// NewWatcher returns a watcher for the probes that match any of the patterns,
// or for all probes if there is no pattern. It does nothing before the first
// call of Sync or Run. Call Close in the end.
func NewWatcher(options *WatcherOptions, patterns ...elfnote.Pattern) *Watcher {
	w := &Watcher{
		cache:    newCache(patterns...),
		patience: deadline.File,
		scanning: deadline.NewInTurns(),
		due:      make(chan struct{}, 1),
		views:    sync.Pool{New: newView},
		seed:     maphash.MakeSeed(),
		reported: make(map[any]time.Time),

		unwanted:  make(map[mappedFile]bool),
		processes: make(map[int]*watched),
		stats:     WatcherStats{EventsError: errNotRunning},
	}
	w.open, w.stop = context.WithCancel(context.Background())
	if options != nil {
		w.WatcherOptions = *options
	}
	return w
}

// ProcessFiles returns the files with wanted probes that processes map, by PID
// and then by address. During a call of the handler it returns those that there
// are after the changes.
func (w *Watcher) ProcessFiles() []*ProcessFile {
	w.mu.Lock()
	defer w.mu.Unlock()
	var pairs []*ProcessFile
	for _, p := range w.processes {
		pairs = append(pairs, p.pairs...)
	}
	slices.SortStableFunc(pairs,
		func(a, b *ProcessFile) int { return a.Process.PID - b.Process.PID })
	return pairs
}

// Stop ends Run, and no further process is scanned. It does not wait. Later
// scans return os.ErrClosed.
func (w *Watcher) Stop() { w.stop() }

// IsStopped reports whether Stop or Close has been called.
func (w *Watcher) IsStopped() bool { return w.open.Err() != nil }

// Close stops the watcher. It lets every [ProcessFile] disappear, so that the
// handler undoes its work, and releases all files. Closing again does nothing.
// Close does not wait for a process that is set aside.
func (w *Watcher) Close() error {
	w.Stop()
	w.scanning.Lock()
	defer w.scanning.Unlock()
	_ = w.procDir.Close() // it may be nil, or closed already
	w.scan = &scan{}
	w.mu.Lock()
	for pid := range w.processes {
		w.forget(pid)
	}
	w.mu.Unlock()
	w.deliver()
	return nil
}

// Sync scans one process, and reads its mappings whatever is known about it. It
// is no error if the process does not exist. The error is a [*procfs.Error], or
// several that are joined, even if the handler got them before. It wraps
// [procfs.ErrBlocked] if the process is set aside. It is the context's error if
// the context ends before the scan.
//
// With PID 0 it scans all processes, each as thoroughly as it needs. The error
// is then that of listing the processes, or the context's if that ends before
// all have been scanned. Errors of single processes go to the handler.
func (w *Watcher) Sync(ctx context.Context, pid int) error {
	if pid == 0 {
		return cmp.Or(w.syncAll(ctx, false), ctx.Err())
	}
	_, err := w.sync(ctx, []int{pid}, asked)
	return err
}

// syncAll scans all processes. If it reports, the handler gets the error, too.
func (w *Watcher) syncAll(ctx context.Context, reports bool) error {
	if err := w.scanning.LockWhile(ctx); err != nil {
		return err
	}
	defer w.scanning.Unlock()
	if w.IsStopped() {
		return errClosed
	}
	if w.BeforePass != nil {
		w.BeforePass()
	}
	w.scan = &scan{}
	pids, err := w.pids()
	if err == nil {
		w.mu.Lock()
		w.stats.Passes++
		clear(w.unwanted)
		w.mu.Unlock()
		complete := w.visit(ctx, pids, ifNeeded)
		w.mu.Lock()
		for pid, p := range w.processes {
			if complete && p.pass != w.stats.Passes { // it is not there any more
				w.forget(pid)
			}
		}
		w.mu.Unlock()
		err = w.scan.lack
	}
	if err != nil && reports {
		w.scan.report(&procfs.Error{Op: "scan all processes", Err: err})
	}
	w.deliver()
	return err
}

// pids lists the processes. The caller holds scanning.
func (w *Watcher) pids() (pids []int, err error) {
	if w.procDir == nil {
		w.procDir, err = os.Open(w.FS.Root())
	} else {
		_, err = w.procDir.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	return procfs.ReadPIDs(w.procDir)
}

// Changes are the differences that a scan of one or of all processes has found
// between the last set of [ProcessFile] and the present one. First attach the
// files that appeared, then detach those that disappeared.
type Changes struct {
	// Appeared are files with wanted probes that a process maps now, and did
	// not before.
	Appeared []*ProcessFile
	// Moved are files that the process had before, with other Mappings or
	// another Path or Deleted, or in the program before. Each replaces the
	// ProcessFile of the same Process and File. They matter only where
	// addresses are computed.
	Moved []*ProcessFile
	// Disappeared are files that are gone: the process ended, executed another
	// program, unmapped the file or is not wanted any more. They are the values
	// delivered last. A file that no other process maps is closed when the
	// handler returns, unless it is held.
	Disappeared []*ProcessFile
	// Errors are those of processes and files that could not be scanned. Each
	// is a [*procfs.Error], and is reported when it is another one than before.
	// While Run runs, one process of an owner is reported in a minute of those
	// that do not answer, or are busy.
	Errors []error
}

var errClosed error = sys.ClosedError("watch")

// Why there are no kernel events, see [WatcherStats].
var (
	errNoKernelEvents = errors.New("no kernel events, polling only")
	errNotRunning     = wrap(errNoKernelEvents, "not running")
)

// Run scans all processes, now and at each interval. If the kernel reports what
// happens to processes, Run also scans single ones within 1 to 20 ms of that,
// unless they map only files that are known to have no wanted probes. It
// returns nil when the context ends or the watcher is stopped, and an error if
// the processes cannot be listed the first time. Later errors of that kind go
// to the handler.
func (w *Watcher) Run(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		return fmt.Errorf("run watcher: interval %v is not positive", interval)
	}
	w.running.Add(1)
	defer w.running.Add(-1)
	// Events first: what happens during the first pass must not be missed.
	var events <-chan struct{}
	source, err := w.openEvents()
	if err == nil {
		defer source.close()
		events = source.happened
	}
	setError := func(err error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.stats.EventsError = err
	}
	setError(err)
	defer setError(errNotRunning)

	if err := w.syncAll(ctx, false); err != nil && !procfs.IsLack(err) { // a lack passes
		if errors.Is(err, errClosed) {
			return nil
		}
		return err
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.open.Done():
			return nil
		case <-events:
			err = w.syncEvents(ctx, source)
		case <-w.due:
			_, err = w.sync(ctx, w.pidsDue(), happened)
		case <-tick.C:
			err = w.syncAll(ctx, true)
		}
		if errors.Is(err, errClosed) {
			return nil // other errors have been reported
		}
	}
}

// openEvents opens the kernel's source of events if the proc file system has
// the PIDs that it reports.
func (w *Watcher) openEvents() (*eventSource, error) {
	if !procfs.HasOwnPIDs(w.FS.Root()) {
		return nil, fmt.Errorf("%w: %s is not the proc file system of the caller's PID namespace",
			errNoKernelEvents, w.FS.Root())
	}
	source, err := openEventSource(w.Record)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKernelEvents, err)
	}
	return source, nil
}

// syncEvents scans the processes that the kernel reported, or all if the kernel
// could not report everything.
func (w *Watcher) syncEvents(ctx context.Context, source *eventSource) error {
	told := source.take()
	w.mu.Lock()
	w.told = told.pids
	var pids []int
	for pid := range told.pids {
		if w.isNeeded(pid, told.pids) {
			pids = append(pids, pid)
		}
	}
	w.mu.Unlock()
	if told.lost > 0 {
		if err := w.syncAll(ctx, true); err != nil {
			w.leave(pids, happened)
			return err
		}
	}
	took, err := w.sync(ctx, pids, happened)
	source.spend(took)
	return err
}

// isNeeded reports whether a process needs a scan for the reports of the
// kernel. Most programs that start map only files that are known to have no
// wanted probes. The caller holds mu.
func (w *Watcher) isNeeded(pid int, all map[int]*told) bool {
	told, p := all[pid], w.processes[pid]
	if p != nil && (told.ended || told.executed && len(p.pairs) > 0 ||
		told.threadEnded && p.leaderless) || w.mapsOthers(told) {
		return true
	}
	// A fork has the files of its parent, which may be a fork itself.
	for range maxForks {
		if parent := w.processes[told.parent]; parent != nil && len(parent.pairs) > 0 {
			return true
		}
		if told = all[told.parent]; told == nil || w.mapsOthers(told) {
			return told != nil
		}
	}
	return true
}

// mapsOthers reports whether a process has mapped a file that is not known to
// have no wanted probes.
func (w *Watcher) mapsOthers(t *told) bool {
	return t.many ||
		slices.ContainsFunc(t.mapped, func(f mappedFile) bool { return !w.unwanted[f] })
}

// learn notes that files have no wanted probes: the kernel reported that a
// process mapped them, it still does, and it has no pair. The caller holds mu.
func (w *Watcher) learn(pid int, mapped []procfs.FileKey) {
	told := w.told[pid]
	if told == nil || len(w.unwanted)+len(told.mapped) > maxUnwanted {
		return
	}
	for _, f := range told.mapped {
		if slices.Contains(mapped, f.FileKey) {
			w.unwanted[f] = true
		}
	}
}

// WatcherStats are numbers of a [Watcher].
type WatcherStats struct {
	// Denied is the number of processes that could not be scanned for lack of
	// privilege, Blocked of those that are set aside because they do not
	// answer, and Postponed of those that are scanned later.
	Denied, Blocked, Postponed int
	// Passes counts the scans of all processes.
	Passes uint64
	// EventsError says why the kernel does not report what happens to
	// processes. It is nil if the kernel does.
	EventsError error
}

// Stats returns the numbers of the watcher.
func (w *Watcher) Stats() WatcherStats {
	w.mu.Lock()
	defer w.mu.Unlock()
	stats := w.stats
	for _, p := range w.processes {
		switch {
		case p.blocked != nil:
			stats.Blocked++
		case p.due:
			stats.Postponed++
		}
		if p.access == denied {
			stats.Denied++
		}
	}
	return stats
}

// wrapped is an error with the text of fmt.Errorf("%w: TEXT"). Variables that
// call fmt.Errorf take 0.04 ms at each start of a program.
type wrapped struct {
	error
	text string
}

func (w wrapped) Error() string         { return w.error.Error() + ": " + w.text }
func (w wrapped) Unwrap() error         { return w.error }
func wrap(err error, text string) error { return wrapped{err, text} }
