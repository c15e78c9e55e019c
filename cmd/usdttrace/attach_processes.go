// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/internal/pidnamespace"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// interval is how often all processes are looked at. What the kernel tells of
// is seen within 20 ms.
const interval = time.Second

// follower follows processes: it attaches to files as these map them, and
// detaches when they are no more.
type follower struct {
	tracer *tracer
	watch  *trace.Watch  // nil where the files are attached already
	looker *proc.Watcher // then, if what processes have mapped is of interest

	// one: one process, or what descends from it, was asked for, rather than
	// all.
	one bool

	polls atomic.Bool // the kernel may not report what processes do: that is to be told
	// tellMore: files are found later than those that were there at first.
	tellMore bool
	skipped  map[string]bool // paths of files whose skipped sites are not to be named again

	running sync.WaitGroup
}

// newFollower makes a follower of the processes that are wanted, each by
// itself; nil stands for all together.
func newFollower(t *tracer, wanted func(proc.Process) bool) (*follower, error) {
	f := &follower{tracer: t, one: wanted != nil, skipped: make(map[string]bool)}
	options := proc.WatcherOptions{Filter: wanted, Handler: f.look, BeforePass: f.warnPolling}
	if len(t.options.files) > 0 {
		f.looker = proc.NewWatcher(&options, t.options.patterns...)
		return f, nil
	}
	var err error
	f.watch, err = t.session.Watch(&trace.WatchOptions{
		Proc: options, PerProcess: f.one, Linger: -1, Changed: f.changed,
	}, t.options.patterns...)
	return f, err
}

// follow watches all processes from now on until the tracing ends. It returns
// when all that there are have been looked at.
func (t *tracer) follow() (err error) {
	if !pidnamespace.IsInitial() && proc.NewFS("").OwnPIDs() {
		t.messages.Warn("processes outside of this PID namespace, such as that of a container, are not seen " +
			"(run it on the host, or in a container with the host's PIDs: --pid=host)")
	}
	if t.follower, err = newFollower(t, nil); err != nil {
		return err
	}
	if t.follower.looker != nil {
		return t.follower.begin(t.follower.looker.SyncAll, t.follower.looker.Run)
	}
	return t.follower.begin(t.follower.watch.SyncAll, t.follower.watch.Run)
}

// followProcess watches one process, and ends the tracing with it.
func (t *tracer) followProcess() error {
	pid := t.options.pid
	if err := t.endWith(pid); err != nil {
		return err
	}
	f, err := newFollower(t, func(p proc.Process) bool { return p.PID == pid })
	if err != nil {
		return err
	}
	t.follower = f
	if err := f.begin(func() error { return f.watch.Sync(pid) }, f.watch.Run); err != nil {
		return err
	}
	sites, _ := t.targets.watched()
	switch {
	case sites > 0:
		t.warnUnmatched()
		return nil
	case t.targets.never == nil && !t.failed.Load():
		t.addNearest(pid)
		return &nothingError{t.targets.nothing(t.options.patterns, t.where())}
	}
	if err := t.verdict(); err != nil {
		return err
	}
	return errTold
}

// begin looks for the first time, and then goes on.
func (f *follower) begin(look func() error, run func(context.Context, time.Duration) error) error {
	f.stopAtEnd()
	done := f.tracer.messages.During("looking for probes and attaching")
	err := look()
	done()
	var reported *proc.Error // of which the user was told
	if err != nil && !errors.As(err, &reported) && !errors.Is(err, os.ErrClosed) {
		return err
	}
	f.tellMore = true
	f.run(run)
	return nil
}

// warnPolling says, once, that processes are scanned for want of kernel events.
func (f *follower) warnPolling() {
	if !f.polls.CompareAndSwap(true, false) {
		return // nothing runs yet, or it has been told
	}
	watcher := f.looker
	if f.watch != nil {
		watcher = f.watch.Watcher()
	}
	if err := watcher.Stats().EventsError; err != nil {
		f.tracer.messages.Warn("%v: processes are scanned once in %v, and what lives shorter is missed", err, interval)
	}
}

// stopAtEnd has nothing more attached when the tracing is to end.
func (f *follower) stopAtEnd() {
	if f.watch != nil {
		context.AfterFunc(f.tracer.ctx, f.watch.Stop)
	}
}

func (f *follower) run(run func(context.Context, time.Duration) error) {
	f.polls.Store(true)
	f.running.Go(func() {
		if err := run(f.tracer.ctx, interval); err != nil {
			f.tracer.warnFailed(err)
			f.tracer.end()
		}
	})
}

// close ends the following of processes, when the tracing is to end.
func (f *follower) close() {
	f.running.Wait()
	if f.looker != nil {
		f.looker.Close()
	}
	if f.watch != nil {
		_ = f.watch.Close() // what detaching may fail with has no consequence
	}
}

// look looks at what processes have mapped, while they are there.
func (f *follower) look(changes *proc.Changes) {
	if f.tracer.stacks == nil {
		return
	}
	for _, pair := range changes.Appeared {
		f.tracer.stacks.Remember(pair.Process.PID)
	}
}

// changed is told what has been attached and is to be detached.
func (f *follower) changed(changes *trace.WatchChanges) {
	t := f.tracer
	for _, err := range changes.Errors {
		f.warn(err)
	}
	for _, pair := range changes.Missed {
		t.targets.setLate(pair.Path)
	}
	for _, a := range changes.Attached {
		t.targets.attached(a)
		if !f.skipped[a.Path()] {
			f.skipped[a.Path()] = f.one // not again for each process
			t.warnSkipped(a, a.Path())
		}
		if f.tellMore {
			t.messages.NoteOf("files that are also watched", "also watching %s in %s", plural(len(a.Sites()), "site"), a.Path())
		}
	}
	if len(changes.Detached) > 0 && t.ctx.Err() == nil {
		t.costs.ask(t)
	}
}

// warn tells of what could not be attached or looked at.
func (f *follower) warn(err error) {
	t := f.tracer
	var failed *usdt.WatchError
	var never *trace.FilteredError
	switch {
	case errors.As(err, &never):
		t.targets.setNever(never)
	case errors.As(err, &failed):
		if running, e := failed.Process.IsRunning(); e == nil && !running {
			t.targets.setLate(failed.Path)
			return
		}
		t.warnFailed(fmt.Errorf("process %s: %s: %w", failed.Process, failed.Path, failed.Err))
	default:
		t.warnLeftOut(err, f.one)
	}
}
