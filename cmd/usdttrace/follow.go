// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/internal/follow"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// interval is how often all processes are scanned. What the kernel reports is
// seen within 20 ms.
const interval = time.Second

// follower follows processes: it attaches to files as processes map them, and
// detaches when no process does any more.
type follower struct {
	scanner
	tracer *tracer
	watch  *usdt.Watch  // nil if files are named: those are attached already
	stats  func() error // why the kernel reports no events

	perProcess bool            // it is about one process, not about all or a family
	begun      bool            // what was there at first is attached
	polls      atomic.Bool     // warnPolling has to find out whether the kernel reports events
	told       map[string]bool // paths of files of which was said what is watched, and what is not

	running sync.WaitGroup
}

// scanner is a watch, or where files are named a watcher, for the names of
// functions on stacks.
type scanner interface {
	Sync(pid int) error
	SyncAll() error
	Run(ctx context.Context, interval time.Duration) error
	Close() error
}

// newFollower makes a follower of the processes that are wanted, of all if
// wanted is nil. One process is attached alone. Those of a family are attached
// together, and the session has others filtered out.
func newFollower(t *tracer, wanted func(proc.Process) bool) (*follower, error) {
	f := &follower{tracer: t, perProcess: wanted != nil && !t.options.followsFamily(),
		told: make(map[string]bool)}
	if len(t.options.files) > 0 {
		watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: wanted,
			Handler: procwatch.Report(f.rememberStacks), BeforePass: f.warnPolling},
			t.options.patterns...)
		f.scanner, f.stats = watcher, func() error { return watcher.Stats().EventsError }
		return f, nil
	}
	linger := time.Duration(-1)
	if t.options.command != nil {
		linger = math.MaxInt64 // the next process that runs it is not late
	}
	var err error
	f.watch, err = trace.WatchSessions(&usdt.WatchOptions{
		Filter:     wanted,
		Mapped:     f.rememberStacks,
		BeforePass: f.warnPolling,
		PerProcess: f.perProcess,
		Linger:     linger,
		Limits:     t.options.limits,
	}, f.changed, trace.WatchSession{Session: t.session, Patterns: t.options.patterns,
		OptionsFor: f.rememberFirst})
	if err != nil {
		return nil, err
	}
	f.scanner = f.watch
	f.stats = func() error { return f.watch.Stats().EventsError }
	return f, nil
}

// follow watches all processes until the tracing ends. It returns when those
// that are there have been scanned.
func (t *tracer) follow() (err error) {
	if !sys.IsInitialPIDNamespace() && procfs.HasOwnPIDs(procfs.NewFS("").Root()) {
		t.messages.Warn("processes outside of this PID namespace, such as that of a container, " +
			"are not seen (run it on the host, or in a container with the host's PIDs: --pid=host)")
	}
	if t.follower, err = newFollower(t, nil); err != nil {
		return err
	}
	return t.follower.begin(t.follower.SyncAll)
}

// followProcess watches one process, and ends the tracing with it.
func (t *tracer) followProcess() error {
	pid := t.options.pid
	if err := t.endWith(pid); err != nil {
		return err
	}
	wanted := func(p proc.Process) bool { return p.PID == pid }
	if t.options.follow {
		wanted = familyOf(pid)
	}
	f, err := newFollower(t, wanted)
	if err != nil {
		return err
	}
	t.follower = f
	scan := func() error { return f.Sync(pid) }
	if t.options.follow {
		scan = f.SyncAll
	}
	if err := f.begin(scan); err != nil {
		return err
	}
	sites, _ := t.targets.watched()
	switch {
	case sites > 0:
		t.warnUnmatched()
		return nil
	case t.targets.filtered == nil && !t.failed.Load():
		t.addNearest(pid)
		err := t.targets.nothing(t.options.patterns, t.where())
		if relatives := t.relatives(); relatives != "" {
			err = fmt.Errorf("%w; %s", err, relatives)
		}
		return &nothingError{err}
	}
	if err := t.verdict(); err != nil {
		return err
	}
	return errReported
}

// begin scans for the first time, and has the scans go on until the tracing is
// to end.
func (f *follower) begin(scan func() error) error {
	t := f.tracer
	if f.watch != nil {
		context.AfterFunc(t.ctx, f.watch.Stop)
	}
	done := t.messages.During("scanning processes and attaching")
	err := scan()
	done()
	var reported *procfs.Error // the user has seen it
	if err != nil && !errors.As(err, &reported) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	f.begun = true
	f.polls.Store(true)
	f.running.Go(func() {
		if err := f.Run(t.ctx, interval); err != nil {
			t.warnFailed(err)
			t.end()
		}
	})
	return nil
}

// warnPolling says, once, if the kernel does not report what processes do.
func (f *follower) warnPolling() {
	if !f.polls.CompareAndSwap(true, false) {
		return // before run, or again
	}
	if err := f.stats(); err != nil {
		f.tracer.messages.Warn("%v: processes are scanned once in %v, "+
			"and what lives shorter is missed", err, interval)
	}
}

// close waits until nothing is scanned any more, and detaches.
func (f *follower) close() {
	f.running.Wait()
	_ = f.Close() // the process ends anyway
}

// rememberStacks has the mappings of processes read while they run, to name the
// functions on their stacks.
func (f *follower) rememberStacks(appeared, _ []*proc.ProcessFile) {
	if f.tracer.stacks == nil {
		return
	}
	for _, pair := range appeared {
		f.tracer.stacks.Remember(pair.Process.PID)
	}
}

// rememberFirst has the mappings of a process read before a file is attached,
// which takes its time: the process may be gone then.
func (f *follower) rememberFirst(pair *proc.ProcessFile) usdt.AttachOptions {
	if f.tracer.stacks != nil {
		f.tracer.stacks.Remember(pair.Process.PID)
	}
	return usdt.AttachOptions{}
}

func (f *follower) changed(changes *trace.WatchChanges) {
	t := f.tracer
	for _, err := range changes.Errors {
		f.warn(err)
	}
	for _, pair := range changes.Missed {
		t.targets.setNotAttached(pair.Path, nil)
	}
	for _, a := range changes.Attached {
		t.targets.attached(a)
		if t.latecomers != nil {
			t.latecomers.attachedNow(a.Path())
		}
		told := f.told[a.Path()]
		if !told {
			if len(f.told) == maxTold {
				clear(f.told)
			}
			f.told[a.Path()] = true
			t.warnSkipped(a, a.Path())
			t.warnFramePointers(a)
		}
		if f.begun && !told {
			t.messages.NoteOf("files that are also watched", "also watching %s in %s",
				plural(len(a.Sites()), "site"), a.Path())
		}
	}
	if len(changes.Detached) > 0 && t.ctx.Err() == nil {
		t.costs.ask(t)
	}
}

// maxTold bounds the files that are remembered: processes may map new ones
// without end.
const maxTold = 10_000

func (f *follower) warn(err error) {
	t := f.tracer
	var failed *follow.WatchError
	var filtered *tracing.FilteredError
	var unpaired *tracing.PairError
	switch {
	case errors.As(err, &unpaired):
		t.targets.setNotAttached("", &nothingError{unpaired})
	case errors.As(err, &filtered):
		t.targets.setNotAttached("", filtered)
	case errors.As(err, &failed):
		if running, e := failed.Process.IsRunning(); e == nil && !running {
			t.targets.setNotAttached(failed.Path, nil)
			return
		}
		t.warnFailed(fmt.Errorf("process %s: %s: %w", failed.Process, failed.Path, failed.Err))
	case errors.Is(err, procfs.ErrPostponed):
		t.messages.NoteOf("processes that are scanned later", "%v", err)
	default:
		t.warnLeftOut(err, f.perProcess)
	}
}

// familyOf returns a filter for a process and its descendants.
func familyOf(pid int) func(proc.Process) bool {
	var mu sync.Mutex
	members := map[int]bool{pid: true}
	return func(p proc.Process) bool {
		mu.Lock()
		defer mu.Unlock()
		if members[p.Parent] {
			members[p.PID] = true
		}
		return members[p.PID]
	}
}

// holdCommand starts the command, which waits until everything is attached.
func (t *tracer) holdCommand() (err error) {
	stdout := os.Stdout
	if t.options.printsOnStdout() {
		stdout = os.Stderr // the two must not be mixed
	}
	t.command, err = hold(t.options.command, stdout)
	return err
}

// beginCommand attaches to what the command, which waits, is known to map. What
// else it and its descendants map is attached when they do.
func (t *tracer) beginCommand() error {
	if len(t.options.files) > 0 {
		if err := t.attachFiles(); err != nil {
			return err
		}
	}
	pid := t.command.pid
	wanted := familyOf(pid)
	if t.alone {
		wanted = func(p proc.Process) bool { return p.PID == pid }
	}
	if len(t.options.files) > 0 && t.stacks == nil {
		return nil
	}
	f, err := newFollower(t, wanted)
	if err != nil {
		return err
	}
	t.follower = f
	if err := t.watchLatecomers(); err != nil {
		t.messages.Warn("which processes were attached late is not known: %v", err)
	}
	if err := f.begin(func() error { return f.Sync(pid) }); err != nil {
		return err
	}
	if sites, _ := t.targets.watched(); sites == 0 {
		t.addNearest(pid)
	}
	return nil
}

// runCommand has the command begin, and the tracing end with it.
func (t *tracer) runCommand() error {
	c := t.command
	if err := c.release(); err != nil {
		return err
	}
	t.watch.Go(func() {
		select {
		case <-c.done:
			failure := c.failure()
			if t.endWithStatus(c.exitStatus(), "") && failure != "" {
				t.messages.Warn("%s", failure)
			}
		case <-t.ctx.Done():
		}
	})
	return nil
}
