// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// interval is how often all processes are looked at. What the kernel tells of is seen within 20 ms.
const interval = time.Second

// follower attaches to files as processes map them, and detaches when they are no more.
type follower struct {
	tracer  *tracer
	watcher *proc.Watcher

	// wanted, if set, says which processes are watched, each by itself. Else a file is attached once, for all.
	wanted func(proc.Process) bool
	// onlyLook: the files are attached already, only what processes have mapped is of interest.
	onlyLook bool
	// keep: what is attached to a process remains so until that ends.
	keep func(pid int) bool

	leftOut int // warnings so far

	// tellMore: files are found later than those that were there at first.
	tellMore bool

	mu         sync.Mutex
	attached   map[mapped]*trace.Attachment
	selections map[*proc.File]*usdt.Selection

	stop    context.CancelFunc
	running sync.WaitGroup
}

// mapped is a file in a process, or in all where the process is zero.
type mapped struct {
	process proc.ID
	file    proc.Identity
}

func newFollower(t *tracer, wanted func(proc.Process) bool) *follower {
	f := &follower{
		tracer: t, wanted: wanted,
		attached:   make(map[mapped]*trace.Attachment),
		selections: make(map[*proc.File]*usdt.Selection),
	}
	f.watcher = proc.NewWatcher(t.options.patterns, &proc.Options{Filter: wanted, Handler: f.handle})
	return f
}

// follow watches the processes that are wanted, nil for all, from now on until the tracing ends. It returns when all
// that there are have been looked at.
func (t *tracer) follow(wanted func(proc.Process) bool) error {
	f := newFollower(t, wanted)
	f.onlyLook = len(t.options.files) > 0
	t.follower = f
	return f.begin(f.watcher.SyncAll)
}

// followProcess watches one process, and ends the tracing with it.
func (t *tracer) followProcess() error {
	pid := t.options.pid
	if err := t.endWith(pid); err != nil {
		return err
	}
	f := newFollower(t, func(p proc.Process) bool { return p.PID == pid })
	t.follower = f
	if err := f.begin(func() error { return f.watcher.Sync(pid) }); err != nil {
		return err
	}
	sites, _ := t.targets.watched()
	switch {
	case sites > 0:
		t.warnUnmatched()
		return nil
	case t.targets.never == nil && !t.failed.Load():
		f.addNearest(pid)
		return &nothingError{t.targets.nothing(t.options.patterns, fmt.Sprintf("process %d", pid))}
	}
	if err := t.verdict(); err != nil {
		return err
	}
	return errTold
}

// endWith has the tracing end when a process ends.
func (t *tracer) endWith(pid int) error {
	exit, err := watchExit(pid)
	if err != nil {
		return err
	}
	t.watch.Go(func() {
		exit(t.ctx)
		t.end()
	})
	return nil
}

// begin looks for the first time, and then has the watcher run.
func (f *follower) begin(look func() error) error {
	done := f.tracer.messages.during("looking for probes and attaching")
	err := look()
	done()
	var reported *proc.Error
	if err != nil && !errors.As(err, &reported) { // else the handler was told
		return err
	}
	f.tellMore = true
	f.run()
	return nil
}

func (f *follower) run() {
	var ctx context.Context
	ctx, f.stop = context.WithCancel(f.tracer.ctx)
	f.running.Go(func() {
		if err := f.watcher.Run(ctx, interval); err != nil {
			f.tracer.warnFailed(err)
			f.tracer.end()
		}
	})
}

// close ends the watching of processes. Attachments are left to the session.
func (f *follower) close() {
	if f.stop != nil {
		f.stop()
	}
	f.running.Wait()
	f.onlyLook = true
	f.watcher.Close()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, sel := range f.selections {
		sel.Close()
	}
}

// handle is told by the watcher what has changed.
func (f *follower) handle(changes *proc.Changes) {
	t := f.tracer
	if t.stacks != nil {
		for _, pair := range changes.Appeared {
			t.stacks.Look(pair.Process.PID)
		}
	}
	if f.onlyLook {
		return
	}
	for _, err := range changes.Errors {
		f.warn(err)
	}
	first := make(map[*proc.File]*proc.Pair)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
		if f.wanted != nil {
			f.attach(pair, pair.Process.ID)
		}
	}
	for _, file := range changes.FilesAppeared {
		if f.wanted == nil && first[file] != nil {
			f.attach(first[file], proc.ID{})
		}
	}
	var gone []*trace.Attachment
	for _, pair := range changes.Disappeared {
		if running, err := pair.Process.IsRunning(); err == nil && running && f.keep != nil && f.keep(pair.Process.PID) {
			continue
		}
		gone = f.take(gone, mapped{pair.Process.ID, pair.File.Identity()})
	}
	for _, file := range changes.FilesDisappeared {
		gone = f.take(gone, mapped{proc.ID{}, file.Identity()})
		f.mu.Lock()
		if sel := f.selections[file]; sel != nil {
			sel.Close()
			delete(f.selections, file)
		}
		f.mu.Unlock()
	}
	if len(gone) == 0 {
		return
	}
	t.costs.ask(t)
	// In the background: the kernel takes its time, and other processes are waiting to be attached.
	for _, a := range gone {
		f.running.Go(func() { _ = a.Close() }) // what closing may fail with has no consequence
	}
}

// warn tells of what could not be looked at. That is a failure only where one process was asked for: among all there
// are always some that cannot be read.
func (f *follower) warn(err error) {
	if f.wanted != nil {
		f.tracer.warnFailed(err)
		return
	}
	switch f.leftOut++; {
	case f.leftOut <= maxLeftOut:
		f.tracer.messages.warn("left out: %v", err)
	case f.leftOut == maxLeftOut+1:
		f.tracer.messages.warn("left out: and more (usdtlist -a tells)")
	}
}

// maxLeftOut is how many processes and files that cannot be read are told of.
const maxLeftOut = 3

// take takes an attachment out of the table.
func (f *follower) take(gone []*trace.Attachment, key mapped) []*trace.Attachment {
	f.mu.Lock()
	defer f.mu.Unlock()
	if a := f.attached[key]; a != nil {
		delete(f.attached, key)
		gone = append(gone, a)
	}
	return gone
}

func (f *follower) attach(pair *proc.Pair, process proc.ID) {
	t := f.tracer
	f.mu.Lock()
	defer f.mu.Unlock()
	key := mapped{process, pair.File.Identity()}
	if f.attached[key] != nil || t.ctx.Err() != nil {
		return
	}
	sel := f.selections[pair.File]
	if sel == nil {
		err := pair.File.Refused()
		if err == nil {
			sel, err = usdt.SelectMatching(usdt.Target{ELF: pair.File.ELF()}, t.targets.match)
		}
		if err != nil {
			f.attachFailed(pair, err)
			return
		}
		f.selections[pair.File] = sel
		t.warnSkipped(sel, pair.Path)
	}
	a, err := t.session.AttachSelection(sel.ForPID(process.PID), nil)
	if err != nil {
		f.attachFailed(pair, err)
		return
	}
	t.targets.attached(a, pair.Path)
	f.attached[key] = a
	if f.tellMore {
		t.messages.warn("also watching %s in %s", plural(len(a.Sites()), "site"), pair.Path)
	}
}

func (f *follower) attachFailed(pair *proc.Pair, err error) {
	if errors.Is(err, elfnote.ErrTooLarge) {
		pair.File.Refuse(err) // to find that out takes a second, and there may be many processes
	}
	var never *trace.NeverError
	switch {
	case errors.Is(err, trace.ErrClosed):
		return // the tracing has ended meanwhile
	case errors.As(err, &never):
		never.File = pair.Path
		f.tracer.targets.setNever(never)
		return
	}
	if running, e := pair.Process.IsRunning(); e == nil && !running {
		f.tracer.targets.setLate(pair.Path)
		return
	}
	f.tracer.warnFailed(fmt.Errorf("process %s: %s: %w", pair.Process, pair.Path, err))
}

// setLate remembers a file that could not be attached to because the process ended before.
func (t *targets) setLate(path string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.late = path
}

func (t *targets) setNever(err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.never = err
}

// addNearest looks in the files of a process for probes that nearly match.
func (f *follower) addNearest(pid int) {
	cache := proc.NewCache(nil)
	files, _ := proc.NewFS("").Files(pid) // what cannot be read has no names to offer
	for _, m := range files {
		if file, ok, err := cache.Acquire(m, nil); err == nil && ok {
			f.tracer.targets.addNearest(usdt.Target{ELF: file.ELF()}, f.tracer.options.patterns)
			file.Release()
		}
	}
}
