// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
)

// A WatchProgram is a program that a Watch keeps attached, and the probes that
// it is for.
type WatchProgram struct {
	// Program belongs to the Manager's collection.
	Program *ebpf.Program

	// Patterns pick the probes: those that match any of them, or all probes if
	// there is no pattern.
	Patterns []elfnote.Pattern

	// OptionsFor, if set, returns the options of each attachment. With a Cookie
	// or SiteCookie for each file or process, the program tells them apart.
	// Each cookie takes specs of its own, see [ManagerOptions].MaxSpecs.
	//
	// The argument is the file and the process to be attached. For an
	// attachment to every process, it has the first process found with the
	// file. OptionsFor is called before each attempt to attach. It must not
	// call the Watch.
	OptionsFor func(*proc.ProcessFile) AttachOptions
}

// WatchOptions say which processes a watch follows: a [Watch], or one of
// package trace. Nil, or the zero value, is all processes of the system.
type WatchOptions struct {
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
	// from its start. A Manager in ModeSingleIPMap always attaches libraries
	// and position-independent programs per process.
	//
	// The PIDs go to the kernel, so /proc has to be that of this process's own
	// PID namespace.
	PerProcess bool

	// After is a time that passes before a process is attached, from when the
	// watch has found that it maps a file or has executed another program. It
	// is for programs that copy their code when they start, to have it on huge
	// pages: a copied breakpoint ends them by SIGTRAP. Hits before that are not
	// seen. Each process is attached separately, as with PerProcess.
	After time.Duration

	// DebugFiles is that of [Target], for all files.
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
	// [Target].NoLease does. A file that is written to is detached, and
	// attached again once it has been written: with a lease before the first
	// write, without one after it.
	NoLease bool

	// Limits bound what is attached, because any user could start processes
	// that map files with any number of probes. 0 means the default, and a
	// negative number no limit.
	//
	//   - FileSites: the sites of one file, 10,000
	//   - OwnerSites: those of all files of one owner, 50,000
	//   - Sites: those of all files, 200,000, which take 70 MB of kernel memory
	//   - OwnerDescriptors: the descriptors of all that is attached for one
	//     owner, a quarter of RLIMIT_NOFILE: a uprobe_multi link has one, and a
	//     perf event up to two
	//   - Descriptors: those of all that is attached, half of RLIMIT_NOFILE
	//
	// A site with a semaphore counts as eight, and so does each perf event
	// where attaching is by these. What is over a limit is not attached. It is
	// an error of [WatchChanges], and is tried again when there is room.
	//
	// An owner is a container, or else a user: see [proc.Process.Owner]. Where
	// an owner lacks room, the owner that has the most gives up half, if it has
	// more than the first one would have then. An owner for which attaching
	// takes more than a quarter of the time waits while there are others.
	Limits follow.Limits
}

// WatchChanges are the changes that a Watch has made to its attachments,
// *[Link] or those of package trace, and the errors.
type WatchChanges[A any] struct {
	// Attached are closed by the Watch.
	Attached []A
	// Detached are closed together as soon as the function that gets them has
	// returned, unless the Manager or session has closed them already. Their
	// Close waits until that is done.
	Detached []A
	// Missed are the files of processes that ended before the files were
	// attached, where they are attached to each process.
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
	follower interface {
		Run(ctx context.Context, interval time.Duration) error
		Sync(pid int) error
		SyncAll() error
		Stats() follow.Stats
		Stop()
		Close() error
	}
	ended func() // called by Close
}

// Watch attaches programs to the probes that match their patterns, wherever a
// process maps a file that has such probes. The processes are scanned once for
// all programs, and files are read once. Sites that cannot be attached are
// skipped, see [Selection.Skipped]. A Watch begins with the first Sync, SyncAll
// or Run. It ends with Close, and with Manager.Close.
//
// The files that a scan finds are attached program by program, in the order of
// the programs, so that a program can count on those before it. A program that
// cannot be attached to a file does not affect the others.
//
// If the maps of the Manager, or the system's limits on open files or memory,
// leave no room, the Watch first detaches files that no process maps any more.
// A file that still fails is tried again before each scan of all processes, by
// SyncAll and Run, unless the file or the program is to blame. A file that
// lacked room is also tried again as soon as the Watch has detached something.
// Retries take no more than about 100 ms at a time: the rest is tried next
// time.
//
// changed, if not nil, gets what was attached and detached, and what went
// wrong. One goroutine at a time calls it: one that calls Sync, SyncAll, Run,
// Close or Manager.Close, or one of the Watch's own when a file has lingered or
// something is tried again. It must not call these methods.
//
// The error wraps [os.ErrClosed] after Manager.Close. Other errors say that
// there is no program, or one that was not loaded for this Manager, or that
// processes of this proc file system cannot be attached to.
func (m *Manager) Watch(
	opts *WatchOptions, changed func(*WatchChanges[*Link]), programs ...WatchProgram,
) (*Watch, error) {
	if len(programs) == 0 {
		return nil, errors.New("there is no program to watch with: give one WatchProgram or more")
	}
	a := &programAttacher{manager: m, programs: slices.Clone(programs)}
	var patterns [][]elfnote.Pattern
	for _, program := range programs {
		if _, err := m.loadedProgram(program.Program); err != nil {
			return nil, err
		}
		name := program.Program.String()
		if info, err := program.Program.Info(); err == nil && info.Name != "" {
			name = info.Name
		}
		a.names, patterns = append(a.names, name), append(patterns, program.Patterns)
	}
	var w *Watch
	w, err := NewWatch(opts, changed, patterns, m.mode, a, func() { m.forget(w) })
	if err == nil && !m.keep(w) {
		return nil, sys.ClosedError("manager")
	}
	return w, err
}

// NewWatch makes the watches of this package and of package trace. Its attacher
// is an internal type, so others cannot call it. patterns has those of each
// part that the attacher attaches.
func NewWatch[A any](
	opts *WatchOptions, changed func(*WatchChanges[A]), patterns [][]elfnote.Pattern, mode Mode,
	attacher follow.Attacher[*Selection, A], ended func(),
) (*Watch, error) {
	if opts == nil {
		opts = &WatchOptions{}
	}
	d := &watchDriver[A]{Attacher: attacher, patterns: patterns, byAddress: mode == ModeSingleIPMap,
		perProcess: opts.PerProcess || opts.After > 0, debugFiles: opts.DebugFiles,
		fileSites: opts.Limits.OfFile(), noLease: opts.NoLease, changed: changed}
	if !slices.ContainsFunc(patterns, func(part []elfnote.Pattern) bool { return len(part) == 0 }) {
		d.all = slices.Concat(patterns...)
	}
	follower, err := follow.New(d, follow.Options{
		Proc: procwatch.WatcherOptions{Filter: opts.Filter, Patient: opts.Patient,
			Handler: procwatch.Report(opts.Mapped), BeforePass: opts.BeforePass},
		Parts:        len(patterns),
		NeedsPIDs:    d.perProcess || d.byAddress,
		FollowsMoves: d.byAddress, // the addresses of the sites change with it
		Linger:       opts.Linger,
		After:        opts.After,
		Limits:       opts.Limits,
	}, d.all...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w: watch without PerProcess, in a mode other than %s", err,
			ModeSingleIPMap)
	}
	return &Watch{follower: follower, ended: ended}, nil
}

// Run scans all processes now and at each interval. In between it scans those
// that the kernel reports to have started, executed or mapped something. It
// returns nil when the context or the Watch ends, and an error if the interval
// is not positive or the processes cannot be listed the first time.
//
// Ten seconds are a good interval. If the kernel reports what processes do, it
// may be longer. Package proc lists the changes that only scans of all
// processes find.
func (w *Watch) Run(ctx context.Context, interval time.Duration) error {
	if w.follower == nil {
		return errNoWatch
	}
	return w.follower.Run(ctx, interval)
}

// Sync scans one process in full. Call it when the process is known to have
// changed. It is no error if the process does not exist. Other errors say what
// went wrong with the process or with files of it. The error wraps
// [proc.ErrBlocked] if the process is set aside, and [os.ErrClosed] after
// Close. Errors of attaching are in [WatchChanges].
func (w *Watch) Sync(pid int) error {
	if w.follower == nil {
		return errNoWatch
	}
	return w.follower.Sync(pid)
}

// SyncAll scans all processes, each as thoroughly as package proc says. The
// error is that of listing the processes, or [os.ErrClosed] after Close. Errors
// of single processes, and of attaching, are in [WatchChanges].
func (w *Watch) SyncAll() error {
	if w.follower == nil {
		return errNoWatch
	}
	return w.follower.SyncAll()
}

// Stats returns how many processes were Denied for lack of privilege, are
// Blocked because they do not answer, or Postponed because they are busy; the
// Passes over all processes, and EventsError, which says why the kernel does
// not report them; how much of the Limits is in use, and how many files are
// OverLimit or Waiting.
func (w *Watch) Stats() follow.Stats {
	if w.follower == nil {
		return follow.Stats{}
	}
	return w.follower.Stats()
}

// Stop ends Run, and nothing more is attached. It waits for neither. What is
// attached stays attached until Close.
func (w *Watch) Stop() {
	if w.follower != nil {
		w.follower.Stop()
	}
}

// errNoWatch is for a zero Watch.
var errNoWatch = fmt.Errorf("a Watch is made by Manager.Watch or trace.WatchSessions: %w", os.ErrClosed)

// Close detaches everything together, and waits until that is done and no
// process is scanned any more. Errors are those of [Link.Close]. If a file
// system has not answered for 2 s, the error wraps [proc.ErrBlocked], as that
// of [Manager.Close] does. It is safe to call it again.
func (w *Watch) Close() error {
	if w.follower == nil {
		return nil
	}
	err := w.follower.Close()
	w.ended()
	return err
}

// watchDriver attaches files where a follow.Follower finds a place for them. A
// part of a file is the probes for one program or session.
type watchDriver[A any] struct {
	follow.Attacher[*Selection, A]
	patterns   [][]elfnote.Pattern // by part
	all        []elfnote.Pattern   // of all parts together, nil if one wants all probes
	byAddress  bool                // the programs know a site by its address
	perProcess bool
	debugFiles bool
	fileSites  int
	noLease    bool
	changed    func(*WatchChanges[A])
}

// A watchedFile is a file whose sites have been checked, once for all.
type watchedFile[A any] struct {
	*Selection
	driver *watchDriver[A]
	parts  []*Selection // which share the file; nil if it has no sites for the part
	errs   []error      // why none of the sites for a part can be attached
}

func (d *watchDriver[A]) Open(pair *procwatch.ProcessFile) (follow.File[A], error) {
	sel, err := Select(Target{ProcessFile: pair, MaxSites: d.fileSites, DebugFiles: d.debugFiles,
		NoLease: d.noLease}, d.all...)
	if err != nil {
		return nil, err
	}
	file := &watchedFile[A]{Selection: sel, driver: d}
	for _, patterns := range d.patterns {
		part, err := Select(Target{Selection: sel}, patterns...)
		if errors.As(err, new(*NotFoundError)) {
			err = nil // it has probes for others
		}
		file.parts, file.errs = append(file.parts, part), append(file.errs, err)
	}
	return file, nil
}

// PerProcess reports whether a file is attached to each process alone. Only in
// an ET_EXEC a site has the same address everywhere. Some semaphores can only
// be counted in a process that has started.
func (d *watchDriver[A]) PerProcess(file *procwatch.CachedFile) bool {
	return d.perProcess || file.IsMiscounted() && procfs.HasOwnPIDs("/proc") ||
		d.byAddress && file.ELF().Header().Type != elf.ET_EXEC
}

func (f *watchedFile[A]) Attach(
	n int, pair *procwatch.ProcessFile, pid int,
) (attachment A, ok bool, err error) {
	if f.parts[n] == nil {
		return attachment, false, f.errs[n]
	}
	var process proc.Process
	if pid != 0 {
		process = pair.Process
	}
	attachment, err = f.driver.AttachPart(n, f.parts[n].ForPID(pid), pair, process)
	return attachment, err == nil, err
}

func (f *watchedFile[A]) WhenWritten(call func()) { f.opened.holder.guard.whenWritten(call) }

func (f *watchedFile[A]) HoldsWriters() bool { return f.opened.holder.guard.lease.Reason() == nil }

func (f *watchedFile[A]) Sites(n int) int {
	if f.parts[n] == nil {
		return 0
	}
	return f.parts[n].weight()
}

// Retry says when to try again. The maps of a Manager are shared out, unless
// they could never hold the specs of one file.
func (d *watchDriver[A]) Retry(err error) follow.When {
	var full *follow.LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return follow.Never
	case full != nil:
		return follow.WithShare
	case errors.Is(err, errAddressInUse):
		return follow.WithRoom
	case errors.Is(err, ErrWritten):
		return follow.Later
	case errors.Is(err, errNotStarted):
		return follow.WhenReady
	default:
		return follow.Classify(err)
	}
}

func (d *watchDriver[A]) Changed(c *follow.Changes[A]) {
	if d.changed != nil {
		d.changed(&WatchChanges[A]{Attached: c.Attached, Detached: c.Detached, Errors: c.Errors,
			Missed: procwatch.Views(c.Missed)})
	}
}

type programAttacher struct {
	manager  *Manager
	programs []WatchProgram
	names    []string // of the programs, which a closed program does not say
}

func (a *programAttacher) AttachPart(
	n int, sel *Selection, pair *procwatch.ProcessFile, process proc.Process,
) (*Link, error) {
	var options AttachOptions
	if a.programs[n].OptionsFor != nil {
		options = a.programs[n].OptionsFor(pair.View())
	}
	lnk, err := a.manager.attachRest(a.programs[n].Program, sel, &options)
	if err != nil {
		return nil, err
	}
	lnk.sel.opened.name = pair.Path // the file may have been opened by another process's path
	lnk.process = process
	return lnk, nil
}

func (a *programAttacher) Descriptors(l *Link) int {
	return len(l.kernel) + (descriptorsPerPerfEvent-1)*l.PerfEvents()
}

func (a *programAttacher) Detach(links []*Link) error { return sys.CloseTogether(links) }

func (a *programAttacher) Explain(n int, err *follow.WatchError) error {
	if n != follow.WholeFile {
		err.Program = a.names[n]
	}
	return err
}
