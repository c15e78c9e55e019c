// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/follow"
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
	// or SiteCookie for each file or process, the program can tell them apart.
	// Each cookie takes specs of its own, see [ManagerOptions].MaxSpecs.
	//
	// The argument is the file and the process to be attached. If that is every
	// process, it is the first one found with the file. OptionsFor is called
	// before the program is attached, which may still fail, and again each time
	// that is tried. It must not call the Watch.
	OptionsFor func(*proc.ProcessFile) AttachOptions
}

// WatchOptions say which processes a watch follows: a [Watch], or one of
// package trace. Nil, or the zero value, is all processes of the system.
type WatchOptions struct {
	// FS is the proc file system; nil is /proc.
	FS *proc.FS
	// Filter reports whether a process is wanted; nil wants all. It is asked
	// when a process is found, and again when the process runs another program
	// or changes its name. It is not asked about processes without memory, such
	// as the threads of the kernel. It must not call the Watch.
	//
	// It is called by one goroutine at a time, unless a call takes so long that
	// the process is set aside.
	Filter func(proc.Process) bool
	// Mapped, if set, is called with the files with such probes that processes
	// have begun to map, and those that they do not map any more, after
	// everything has been attached: to read what else is to be known of a
	// process while it runs. It is called as the function that is told of
	// changes is, and before that.
	Mapped func(appeared, disappeared []*proc.ProcessFile)
	// BeforePass, if set, is called before each scan of all processes.
	BeforePass func()

	// PerProcess attaches separately to each process that the filter lets
	// through, so that no other process is hit. Without it a file is attached
	// once, for every process that maps it now or later, whatever the filter
	// says of the others. That is cheaper, and a new process is hit from its
	// start. A Manager in ModeSingleIPMap always attaches libraries and
	// position-independent programs per process.
	//
	// The kernel gets the PIDs, so FS has to be that of this process's own
	// PID namespace.
	PerProcess bool

	// Linger is how long a file stays attached, and open, after the last
	// process that maps it has gone. So programs that are started again and
	// again are not attached each time, and are hit from their start. 0 means a
	// second; negative means not at all. What is attached to one process does
	// not linger.
	Linger time.Duration

	// Limits bound what is attached.
	Limits Limits
}

// WatchChanges are what a Watch has changed, and what it could not.
type WatchChanges struct {
	// Attached are closed by the Watch.
	Attached []*Link
	// Detached are closed together as soon as the function that is told of them
	// has returned, unless the Manager has detached everything. Their Close
	// waits until that is done.
	Detached []*Link
	// Errors say which processes and files could not be read, and which files
	// could not be attached. They affect nothing else. A process that has
	// exited meanwhile, or a file without probes for some of the programs, is
	// no error. A retry that fails with the same text is not reported again.
	Errors []error
}

// A Watch keeps programs attached to the probes that match their patterns, in
// whatever processes come and go. Its methods are safe for concurrent use.
type Watch struct {
	manager  *Manager
	follower *follow.Follower[*watchedFile, *Link]
}

// Watch attaches programs to the probes that match their patterns, wherever a
// process maps a file that has such probes. The processes are scanned once for
// all programs, and files are read once. Sites that cannot be attached are
// skipped, see [Selection.Skipped]. A Watch begins with the first Sync, SyncAll
// or Run. It ends with Close, and with Manager.Close.
//
// What a scan finds to attach is attached program by program, in their order,
// so that a program can count on those before it. What it finds to detach is
// detached together. A program that cannot be attached to a file does not
// affect the others.
//
// If the maps of the Manager, or the system's limits on open files or memory,
// leave no room, the Watch first detaches files that no process maps any more.
// What still fails is tried again before each scan of all processes, by SyncAll
// and Run, unless the file or the program is to blame. What lacked room is
// tried again also as soon as the Watch has detached something. Retries take no
// more than about 100 ms at a time: the rest is tried next time.
//
// changed, if not nil, is told what was attached and detached, and what went
// wrong. It is called by one goroutine at a time: by the one that calls Sync,
// SyncAll, Run or Close, or closes the Manager, and by another one if a file
// has lingered or if there is room for what could not be attached. It must not
// call these.
//
// The error wraps [os.ErrClosed] after Manager.Close. Other errors say that
// there is no program, or one that was not loaded for this Manager, or that
// processes of this proc file system cannot be attached to.
func (m *Manager) Watch(
	opts *WatchOptions, changed func(*WatchChanges), programs ...WatchProgram,
) (*Watch, error) {
	if opts == nil {
		opts = &WatchOptions{}
	}
	if len(programs) == 0 {
		return nil, errors.New("there is no program to watch with: give one WatchProgram or more")
	}
	d := &watchDriver{
		manager: m, programs: slices.Clone(programs), patterns: patternsOf(programs), opts: *opts,
		changed: changed,
	}
	for _, program := range programs {
		if _, err := m.checkProgram(program.Program); err != nil {
			return nil, err
		}
		d.names = append(d.names, programName(program.Program))
	}
	follower, err := follow.New(d, follow.Options{
		Proc: procwatch.WatcherOptions{FS: opts.FS, Filter: opts.Filter,
			Handler: procwatch.Report(opts.Mapped), BeforePass: opts.BeforePass},
		Parts:        len(programs),
		NeedsPIDs:    opts.PerProcess || m.mode == ModeSingleIPMap,
		FollowsMoves: m.mode == ModeSingleIPMap, // the addresses of the sites change with it
		Linger:       opts.Linger,
		Limits:       follow.Limits(opts.Limits),
	}, d.patterns...)
	if err != nil {
		return nil, fmt.Errorf("watch: %w: watch without PerProcess, in a mode other than %s", err,
			ModeSingleIPMap)
	}
	w := &Watch{manager: m, follower: follower}
	if !m.keep(w) {
		return nil, sys.ClosedError("manager")
	}
	return w, nil
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
// [proc.ErrBlocked] if the process is set aside, and [os.ErrClosed] after
// Close. Errors of attaching are in [WatchChanges].
func (w *Watch) Sync(pid int) error { return w.follower.Sync(pid) }

// SyncAll scans all processes, each as thoroughly as it needs. The error is
// that of listing the processes, or [os.ErrClosed] after Close. What is wrong
// with single ones is in [WatchChanges], as are errors of attaching.
func (w *Watch) SyncAll() error { return w.follower.SyncAll() }

// Stats returns the numbers of the watch.
func (w *Watch) Stats() WatchStats { return WatchStats(w.follower.Stats()) }

// Links returns what is attached now, in no order.
func (w *Watch) Links() []*Link { return w.follower.Attachments() }

// Close detaches everything, all at a time. It waits until that is done, and
// until no process is scanned any more. Errors are those of [Link.Close]. It is
// safe to call it again.
func (w *Watch) Close() error {
	err := w.follower.Close()
	w.manager.forget(w)
	return err
}

// watchDriver attaches the programs of a Watch where a follow.Follower finds a
// place for them. The parts of a file are its probes for each program.
type watchDriver struct {
	manager  *Manager
	programs []WatchProgram
	names    []string          // of the programs, which cannot be asked once they are closed
	patterns []elfnote.Pattern // of all programs together
	opts     WatchOptions
	changed  func(*WatchChanges)
}

// Open checks the sites of a file, once for all processes and all programs.
func (d *watchDriver) Open(pair *procwatch.ProcessFile) (*watchedFile, error) {
	sel, err := Select(Target{ProcessFile: pair, MaxSites: follow.Limits(d.opts.Limits).OfFile()},
		d.patterns...)
	if err != nil {
		return nil, err
	}
	file := &watchedFile{selection: sel, parts: make([]filePart, len(d.programs))}
	for n := range d.programs {
		part, err := Select(Target{Selection: sel}, d.programs[n].Patterns...)
		if errors.As(err, new(*NotFoundError)) {
			err = nil // it has probes for other programs
		}
		file.parts[n] = filePart{part, err}
	}
	return file, nil
}

func (d *watchDriver) Release(file *watchedFile) { file.selection.Close() }

// PerProcess reports whether a file is attached to each process alone. In
// ModeSingleIPMap the programs know a site by its address, which is the same
// everywhere only for an executable that is not position-independent.
func (d *watchDriver) PerProcess(file *procwatch.CachedFile) bool {
	return d.opts.PerProcess || d.manager.mode == ModeSingleIPMap &&
		file.ELF().Kind() != elfnote.Executable
}

func (d *watchDriver) Attach(
	n int, file *watchedFile, pair *procwatch.ProcessFile, pid int,
) (*Link, bool, error) {
	program, part := &d.programs[n], &file.parts[n]
	if part.selection == nil {
		return nil, false, part.err
	}
	var options AttachOptions
	if program.OptionsFor != nil {
		options = program.OptionsFor(pair.View())
	}
	lnk, err := d.manager.attach(program.Program, part.selection.ForPID(pid), &options)
	if err != nil {
		return nil, false, err
	}
	lnk.sel.opened.name = pair.Path // the file may have been opened by another process's path
	if pid != 0 {
		lnk.process = pair.Process
	}
	return lnk, true, nil
}

// Sites counts what the kernel attaches for a part.
func (d *watchDriver) Sites(n int, file *watchedFile) int {
	if part := &file.parts[n]; part.selection != nil {
		return part.selection.weight()
	}
	return 0
}

func (d *watchDriver) Descriptors(l *Link) int { return l.descriptors() }

func (d *watchDriver) Detach(links []*Link) error { return sys.CloseTogether(links) }

// Retry says when what failed is to be tried again. The maps of the Manager
// have room for what needs no more than they hold altogether, and are shared
// out.
func (d *watchDriver) Retry(err error) follow.When {
	var full *follow.LimitError
	switch {
	case errors.As(err, &full) && full.Needed > full.Capacity:
		return follow.Never
	case full != nil:
		return follow.WithShare
	case errors.Is(err, errAddressInUse):
		return follow.WithRoom
	default:
		return follow.Classify(err)
	}
}

func (d *watchDriver) Explain(n int, pair *procwatch.ProcessFile, err error) error {
	failed := &follow.WatchError{Path: pair.Path, Process: pair.Process, Err: follow.InWatch(err)}
	if n != follow.WholeFile {
		failed.Program = d.names[n]
	}
	return failed
}

func (d *watchDriver) Changed(c *follow.Changes[*Link]) {
	if d.changed != nil {
		d.changed(&WatchChanges{Attached: c.Attached, Detached: c.Detached, Errors: c.Errors})
	}
}

// patternsOf returns the patterns of all programs, none if one of the programs
// is for all probes.
func patternsOf(programs []WatchProgram) []elfnote.Pattern {
	var all []elfnote.Pattern
	for i := range programs {
		if len(programs[i].Patterns) == 0 {
			return nil
		}
		all = slices.Concat(all, programs[i].Patterns)
	}
	return all
}

// programName returns what people call a program.
func programName(prog *ebpf.Program) string {
	if info, err := prog.Info(); err == nil && info.Name != "" {
		return info.Name
	}
	return prog.String()
}

// A watchedFile is a file whose sites have been checked, once for all its
// processes and all programs of a Watch.
type watchedFile struct {
	selection *Selection
	parts     []filePart // by program
}

// A filePart is the sites of a file for one program. Without a selection there
// are none.
type filePart struct {
	selection *Selection // shares the file's
	err       error      // the file has probes for the program, but none that can be attached
}
