// SPDX-License-Identifier: BSD-2-Clause

// Package watch keeps BPF programs attached to probes in all processes that
// come and go.
//
// A watch has parts: each is a program of a usdt.Manager, a session of package
// trace, or what attaches by other means, and is attached to the probes that
// match its patterns, in every file that a process maps.
//
//	w, err := watch.New(nil, report,
//		watch.Program(mgr, objs.OnQuery, elfnote.Exact("postgresql", "query__start")))
//	defer w.Close()
//	err = w.Run(ctx, 5*time.Second)
//
// A file is attached once, however many processes map it, and detached when the
// last of them has ended; [Options].PerProcess attaches to each process alone.
// What could not be attached is in [Changes].Errors, and is tried again when
// there may be room, time or an answer. [Limits] bound what is attached, shared
// out between containers and users, because anyone can map files with many
// probes.
//
// A file that is written to is detached first, and attached again when that is
// over. Package proc says which processes are noticed, and how soon.
package watch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
)

// Options say which processes a watch follows, also one of package trace. Nil,
// or the zero value, is all processes of the system.
type Options struct {
	// Proc is the proc file system that has the processes, "" for /proc. An
	// agent in a container that has the /proc of its host mounted at /host/proc
	// names that. If it is of another PID namespace than the agent's, files are
	// attached for every process, the kernel does not report what processes do,
	// and Run finds it at its interval.
	Proc proc.FS
	// Filter reports whether a process is wanted; nil wants all. It is asked
	// when a process is found, and again when the process runs another program
	// or changes its name, but not about the threads of the kernel. It must not
	// call the Watch. One goroutine at a time calls it, unless a call takes so
	// long that the process is set aside.
	Filter func(proc.Process) bool
	// Mapped, if set, gets the files with wanted probes that processes have
	// begun to map, and those that they do not map any more. A file of the
	// program that a process has executed and of the one before is in both.
	// Mapped is called after everything has been attached, and before the same
	// goroutine reports the attachments as changes. It can read more of a
	// process while that runs.
	Mapped func(appeared, disappeared []*proc.ProcessFile)
	// BeforePass, if set, is called before each scan of all processes.
	BeforePass func()

	// PerProcess attaches separately to each process that the filter lets
	// through, so that no other process is hit. Without it a file is attached
	// once, for every process that maps it now or later, also those that the
	// filter does not let through. That is cheaper, and a new process is hit
	// from its start.
	//
	// The PIDs go to the kernel, so Proc has to be of this process's own PID
	// namespace.
	PerProcess bool

	// After is a time that passes before a process is attached, from when the
	// watch has found that it maps a file or has executed another program. It
	// is for programs that copy their code when they start, to have it on huge
	// pages: a copied breakpoint ends them by SIGTRAP. Hits before that are not
	// seen. Each process is attached separately, as with PerProcess.
	After time.Duration

	// DebugFiles has the installed debug file of a file searched for when an
	// argument names a symbol that the file lacks, as stack.DebugSymbols finds
	// it. Without it no other file is read.
	DebugFiles bool

	// Patient waits for the process of Sync, for those that the filter lets
	// through, and for attaching to their files, as long as that takes, also
	// where the machine is busy. Set it if these are the caller's own, such as
	// a child that is held until everything is attached. Without it, what does
	// not answer within half a second is set aside, and is attached as soon as
	// it answers: another user's process may never do.
	Patient bool

	// Linger is the time for which a file stays attached, and open, after the
	// last process that maps it has gone. So programs that are started again
	// and again are hit from their start. 0 means a second, negative not at
	// all. An attachment to one process does not linger, nor does a file that
	// has no lease, see NoLease.
	Linger time.Duration

	// NoLease lets other processes write to attached files without waiting, as
	// [usdt.Target].NoLease does. A file that is written to is detached, and
	// attached again once it has been written: with a lease before the first
	// write, without one after it.
	NoLease bool

	// Limits bound what is attached, because any user could start processes
	// that map files with any number of probes.
	Limits Limits
}

func (o *Options) isPerProcess() bool { return o.PerProcess || o.After > 0 }

// Limits bound what a watch attaches. 0 means the default, and a negative
// number no limit.
//
// A site with a semaphore counts as eight, and so does each perf event where
// attaching is by these. It counts as one more for each KiB of its texts and
// for each 12 of its arguments. So each that counts takes 6 kB of memory at
// most, mostly 0.5 kB: 1.2 GB for all, 0.3 GB for an owner.
//
// What is over a limit is not attached. It is an error of [Changes], and is
// tried again when there is room.
//
// An owner is a container, or else a user, also with all cgroups and users that
// it makes. Where an owner lacks room, the owner that has the most gives up
// half, if it has more than the first one would have then. An owner for which
// attaching takes more than a quarter of the time waits while there are others.
type Limits struct {
	FileSites  int // the sites of one file, 10,000
	OwnerSites int // those of all files of one owner, 50,000
	Sites      int // those of all files, 200,000, which take 70 MB of kernel memory

	// The descriptors of all that is attached for one owner, a quarter of
	// RLIMIT_NOFILE: a uprobe_multi link has one, and a perf event up to two.
	OwnerDescriptors int
	Descriptors      int // those of all that is attached, half of RLIMIT_NOFILE
}

// Changes are the changes that a Watch has made to its attachments, those of
// its parts, and the errors.
type Changes[A any] struct {
	// Attached are closed by the Watch.
	Attached []A
	// Detached are closed together as soon as the function that gets them has
	// returned, unless the Manager or session has closed them already. Their
	// Close waits until that is done.
	Detached []A
	// Missed are the files of processes that ended before the files were
	// attached.
	Missed []*proc.ProcessFile
	// Errors say which processes and files could not be read, and which files
	// could not be attached. They affect nothing else. A process that has
	// exited meanwhile, or a file without probes for some of the programs, is
	// no error. A retry that fails with the same text is not reported again. Of
	// the processes of an owner that do not answer, or are busy, one is
	// reported in a minute.
	Errors []error
}

// A Watch keeps programs attached to the probes that match their patterns while
// processes come and go. Its methods are safe for concurrent use.
type Watch struct {
	opts     Options
	driver   driver
	parts    int                // their number
	watcher  *procwatch.Watcher // nil in a zero Watch
	patience time.Duration      // with a call of the driver
	running  atomic.Int32       // calls of Run
	stats    atomic.Pointer[Stats]
	closing  sync.WaitGroup
	// unanswered counts the calls that do not return.
	unanswered deadline.Unanswered
	ends       []func() // of the parts, called by the first Close
	ended      sync.Once
	reason     atomic.Pointer[error] // why Run ends, if that is not Stop or Close

	// following is held while changes are followed. It guards what comes next.
	following deadline.InTurns
	files     map[procfs.FileID]*file                 // that processes map, or that linger
	refused   map[procfs.FileID]*procwatch.CachedFile // too large to be opened again
	attached  map[spot]*attachment
	failed    map[spot]*failure // may succeed later
	calls     map[procfs.FileID]*call
	attaching attaching.Files // those of them that attach
	abandoned int             // calls, since the lock was taken
	budget    *budget
	turn      uint64      // counts attachments and failures
	until     time.Time   // when this round of attaching ends
	waits     *time.Timer // tries again what waits for time
	ready     *time.Timer // tries again what is starting
}

// Run scans all processes now and at each interval. In between it scans those
// that the kernel reports to have started, executed or mapped something.
//
// Run always returns an error: that of the context when this ends, one that
// wraps [os.ErrClosed] after Stop or Close, or when the Manager is closed. It
// returns at once if the interval is not positive, or if the processes cannot
// be listed the first time.
//
// Ten seconds are a good interval. If the kernel reports what processes do, it
// may be longer: package proc says what only scans of all processes find.
func (w *Watch) Run(ctx context.Context, interval time.Duration) error {
	if w.watcher == nil {
		return errNoWatch
	}
	w.running.Add(1)
	defer w.running.Add(-1)
	if err := w.watcher.Run(ctx, interval); err != nil {
		return err
	}
	switch reason := w.reason.Load(); {
	case reason != nil:
		return *reason
	case ctx.Err() != nil:
		return ctx.Err()
	}
	return sys.ClosedError("watch")
}

// Sync scans one process in full. Call it when the process is known to have
// changed. It is no error if the process does not exist. Other errors say what
// went wrong with the process or with files of it. The error wraps
// [proc.ErrBlocked] if the process is set aside, and [os.ErrClosed] after
// Close. It is the context's error if that ends before the scan. Errors of
// attaching are in [Changes].
//
// With PID 0 it scans all processes, each as thoroughly as package proc says.
// Other errors are then those of listing the processes: those of single
// processes are in Changes.
func (w *Watch) Sync(ctx context.Context, pid int) error {
	if w.watcher == nil {
		return errNoWatch
	}
	return w.watcher.Sync(ctx, pid)
}

// Stats returns the numbers of the watch.
func (w *Watch) Stats() Stats {
	if w.watcher == nil {
		return Stats{}
	}
	stats, scans := *w.stats.Load(), w.watcher.Stats()
	stats.Denied, stats.Blocked, stats.Postponed = scans.Denied, scans.Blocked, scans.Postponed
	stats.Passes, stats.EventsError = scans.Passes, scans.EventsError
	return stats
}

// Stats are the numbers of a watch: of the last scan and round of attaching.
type Stats struct {
	// Denied is the number of processes that could not be scanned for lack of
	// privilege.
	Denied int
	// Blocked is the number of processes that are set aside because they, or
	// files that they map, do not answer. Postponed is the number of those that
	// are scanned later: they, or others of the same container or user, change
	// so often that scans would take too much of the time, or the others are
	// blocked.
	Blocked, Postponed int
	// Passes counts the scans of all processes.
	Passes uint64
	// EventsError says why the kernel does not report what happens to
	// processes, so that passes do all the work: because Run has not been
	// called, for example. It is nil if the kernel does.
	EventsError error
	// Sites is the part of Limits.Sites in use. A site with a semaphore counts
	// as eight, so fewer may be attached.
	Sites int
	// Descriptors is the part of Limits.Descriptors in use.
	Descriptors int
	// OverLimit is the number of files, and of files in processes, that are not
	// attached because of the Limits, or because the maps of the Manager have
	// no room.
	OverLimit int
	// Waiting is the number of those that are not attached yet because
	// attaching for the same owner has taken too much of the time, or goes on,
	// or gets no answer.
	Waiting int
}

// Stop ends Run, and nothing more is attached. It waits for neither. What is
// attached stays attached until Close.
func (w *Watch) Stop() {
	if w.watcher != nil {
		w.watcher.Stop()
	}
}

func (w *Watch) isStopped() bool { return w.watcher.IsStopped() }

// errNoWatch is for a zero Watch.
var errNoWatch = fmt.Errorf("a Watch is made by watch.New: %w", os.ErrClosed)

// Close detaches everything together, and waits until that is done and no
// process is scanned any more. Errors are those of [usdt.Link.Close]. If a file
// system has not answered for 2 s, the error wraps [proc.ErrBlocked], as that
// of [usdt.Manager.Close] does. It is safe to call it again.
func (w *Watch) Close() error {
	if w.watcher == nil {
		return nil
	}
	w.Stop()
	w.following.Lock()
	for _, timer := range []*time.Timer{w.waits, w.ready} {
		if timer != nil {
			timer.Stop()
		}
	}
	r := &round{}
	for id := range w.files {
		w.leave(id, r)
	}
	for at := range w.attached {
		w.detach(at.location, r)
	}
	w.tell(r)
	err := w.driver.Detach(r.detached)
	w.following.Unlock()
	w.closing.Wait()
	err = errors.Join(err, w.attaching.Wait(attaching.LinkPatience), w.watcher.Close())
	w.ended.Do(func() {
		for _, end := range w.ends {
			end()
		}
	})
	return err
}

// Program is the part of a watch that keeps a program attached to the probes
// that match any of the patterns, or to all probes if there is no pattern. The
// program belongs to the Manager's collection. Its name in the kernel is that
// of the part.
//
// The selection of each link has the process that is attached and the path of
// the file, as that process, or the first one found with it, sees it. The Watch
// closes the links.
func Program(
	mgr *usdt.Manager, program *ebpf.Program, patterns ...elfnote.Pattern,
) Part[*usdt.Link] {
	name := ""
	if program != nil { // else Begin fails
		if info, err := program.Info(); err == nil {
			name = info.Name
		}
	}
	return Part[*usdt.Link]{
		Patterns: patterns,
		Name:     name,
		Attach: func(
			_ *proc.ProcessFile, sites *usdt.Selection, opts *usdt.AttachOptions,
		) (*usdt.Link, error) {
			return mgr.Attach(program, usdt.Target{Selection: sites}, opts)
		},
		Detach: sys.CloseTogether[*usdt.Link],
		Descriptors: func(l *usdt.Link) int {
			// Perf events take two each, with their BPF links. One is for the
			// array by which some programs are called.
			links, _ := l.Links() // none of perf events
			return max(1, len(links)) + 2*l.PerfEvents()
		},
		Begin: func(w *Watch) (end func(), err error) {
			if mgr == nil {
				return nil, errors.New("there is no Manager to attach with: see usdt.NewManager")
			}
			if err := mgr.Check(program); err != nil {
				return nil, err
			}
			var closed error = sys.ClosedError("manager")
			select {
			case <-mgr.Done():
				return nil, closed
			default:
			}
			ended := make(chan struct{})
			go func() {
				select {
				case <-mgr.Done():
					w.reason.Store(&closed)
					w.Stop()
				case <-ended:
				}
			}()
			return func() { close(ended) }, nil
		},
	}
}
