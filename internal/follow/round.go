// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

// A round is what comes of one set of changes of the processes.
type round[A any] struct {
	Changes[A]
	// gone are changes of which what has disappeared is still attached. It is
	// nil once that is detached.
	gone *procwatch.Changes
	// unwanted was attached by a call that returned late, when it was not
	// wanted any more.
	unwanted []A
}

// A target is a place to attach, and the pair by which it was found.
type target struct {
	Place
	pair  *procwatch.ProcessFile
	owner string // who is to answer for it
}

func newTarget(place Place, pair *procwatch.ProcessFile) target {
	return target{place, pair, pair.Process.Owner()}
}

// inProcess returns the place of a pair's file in its process.
func inProcess(pair *procwatch.ProcessFile) Place {
	id := procfs.ID{PID: pair.Process.PID, StartTime: pair.Process.StartTime}
	return Place{Process: id, File: pair.File.ID()}
}

// inEveryProcess returns the place of a pair's file in every process.
func inEveryProcess(pair *procwatch.ProcessFile) Place { return Place{File: pair.File.ID()} }

// follow attaches what has appeared and detaches what has disappeared.
func (f *Follower[F, A]) follow(changes *procwatch.Changes) {
	f.following.Lock()
	defer f.following.Unlock()
	r := &round[A]{gone: changes}
	if !f.isStopped() { // else what is attached is for Close
		r.Errors = slices.Clone(changes.Errors)
		f.attach(f.targets(changes, r), r)
		f.detachGone(r)
	}
	if f.opts.Proc.Handler != nil {
		f.opts.Proc.Handler(changes)
	}
	f.finish(r)
}

// targets returns what is to be attached.
func (f *Follower[F, A]) targets(changes *procwatch.Changes, r *round[A]) []target {
	var targets []target
	first := make(map[*procwatch.CachedFile]*procwatch.ProcessFile)
	f.leaveWritten(changes.FilesAppeared)
	for _, pair := range changes.Appeared {
		if first[pair.File] == nil {
			first[pair.File] = pair
		}
		if f.driver.PerProcess(pair.File) {
			targets = append(targets, newTarget(inProcess(pair), pair))
		}
	}
	for _, file := range changes.FilesAppeared {
		f.lingering.back(file.ID()) // before anything needs room
		pair := first[file]
		if pair == nil {
			continue
		}
		if !f.driver.PerProcess(file) {
			targets = append(targets, newTarget(inEveryProcess(pair), pair))
		} else if source := f.sources[file.ID()]; source != nil && !source.HasSameSites(file) {
			targets = append(targets, f.others(pair)...)
		}
		f.sources[file.ID()] = file
	}
	return append(targets, f.moved(changes.Moved, r)...)
}

// leaveWritten detaches files that were written to, to be attached anew with
// what is in them now. What is attached is of the same file for the kernel, so
// that is done first, and no hit is seen by both.
func (f *Follower[F, A]) leaveWritten(files []*procwatch.CachedFile) {
	old := &round[A]{}
	for _, file := range files {
		id := file.ID()
		if source := f.sources[id]; source == nil || source.HasSameSites(file) {
			continue
		}
		f.detachFile(id, old)
		for place := range f.attached {
			if place.File == id {
				f.detach(place, old)
			}
		}
	}
	f.detachNow(old)
}

// others returns the processes that map the same file as a pair, and have not
// been scanned since it was written to.
func (f *Follower[F, A]) others(of *procwatch.ProcessFile) []target {
	var targets []target
	for _, pair := range f.watcher.ProcessFiles() {
		if pair.File != of.File && pair.File.ID() == of.File.ID() {
			place := inProcess(pair)
			pair := *pair
			pair.File = of.File
			targets = append(targets, newTarget(place, &pair))
		}
	}
	return targets
}

// moved detaches pairs that are mapped elsewhere now, and returns them to be
// attached anew.
func (f *Follower[F, A]) moved(pairs []*procwatch.ProcessFile, r *round[A]) []target {
	if !f.opts.FollowsMoves {
		return nil
	}
	var targets []target
	old := &round[A]{}
	for _, pair := range pairs {
		place := inProcess(pair)
		if !f.driver.PerProcess(pair.File) || f.isAttachedAt(place, pair.Mappings) {
			continue
		}
		f.detach(place, old)
		targets = append(targets, newTarget(place, pair))
	}
	f.detachNow(old) // first, so that no hit is seen by both
	return targets
}

func (f *Follower[F, A]) isAttachedAt(place Place, mappings []procfs.Mapping) bool {
	return slices.ContainsFunc(f.attached[place], func(a *attachment[A]) bool {
		return a != nil && slices.Equal(a.mappings, mappings)
	})
}

// detachGone detaches what has disappeared, unless that has been done.
func (f *Follower[F, A]) detachGone(r *round[A]) {
	if r.gone == nil {
		return
	}
	again := make(map[Place]bool) // of a file that was written to
	for _, pair := range r.gone.Appeared {
		again[inProcess(pair)] = true
	}
	for _, pair := range r.gone.Disappeared {
		if !again[inProcess(pair)] {
			f.detach(inProcess(pair), r)
		}
	}
	for _, file := range r.gone.FilesDisappeared {
		if f.sources[file.ID()] != file {
			continue // it was written to, and is attached as another one
		}
		// What is attached in every process lingers.
		if f.opts.Linger >= 0 && f.attached[Place{File: file.ID()}] != nil {
			f.lingering.leave(file.ID(), f.opts.Linger)
		} else {
			f.leave(file.ID(), r)
		}
	}
	r.gone = nil
}

// endLinger detaches a file that has lingered.
func (f *Follower[F, A]) endLinger(file procwatch.FileID) {
	r := &round[A]{}
	f.leave(file, r)
	f.finish(r)
}

// leave detaches and closes a file that no process maps any more.
func (f *Follower[F, A]) leave(id procwatch.FileID, r *round[A]) {
	f.detachFile(id, r)
	delete(f.sources, id)
}

// detachFile detaches a file in every process and closes it.
func (f *Follower[F, A]) detachFile(id procwatch.FileID, r *round[A]) {
	f.detach(Place{File: id}, r)
	if file, ok := f.files[id]; ok {
		f.release(id, file)
		delete(f.files, id)
	}
}

// detach has all parts of a place detached.
func (f *Follower[F, A]) detach(place Place, r *round[A]) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.Detached = appendAttached(r.Detached, f.attached[place])
	delete(f.attached, place)
	f.budget.give(place)
}

// detachNow tells what is detached and detaches it at once. It reports whether
// there was anything to detach.
func (f *Follower[F, A]) detachNow(r *round[A]) bool {
	if len(r.Detached) == 0 {
		return false
	}
	f.tell(r)
	_ = f.driver.Detach(r.Detached) // the kernel detaches whatever it says
	f.closing.Go(func() { f.tryAgain(WithRoom) })
	return true
}

// detachFor is detachNow for somebody who waits for the room. It leaves behind
// what takes its time, as the kernel does with perf events, and reports whether
// that was not needed.
func (f *Follower[F, A]) detachFor(r *round[A]) (done bool) {
	if f.running.Load() == 0 {
		return f.detachNow(r) // who calls SyncAll waits for all of it
	}
	f.tell(r)
	ended := make(chan struct{})
	f.closing.Go(func() {
		_ = f.driver.Detach(r.Detached) // the kernel detaches whatever it says
		close(ended)
		f.tryAgain(WithRoom)
	})
	select {
	case <-ended:
		return true
	case <-time.After(detachPatience):
		return false
	}
}

// detachPatience is how long what is attached waits for what is detached for
// it. A uprobe_multi link takes some 50 ms.
const detachPatience = 300 * time.Millisecond

// finish tells what has changed and detaches in the background: the kernel
// takes its time, and other processes are waiting to be attached. What lacked
// room is tried again then.
func (f *Follower[F, A]) finish(r *round[A]) {
	f.count()
	f.tell(r)
	if len(r.Detached) > 0 {
		f.closing.Go(func() {
			_ = f.driver.Detach(r.Detached) // the kernel detaches whatever it says
			f.tryAgain(WithRoom)
		})
	}
}

func (f *Follower[F, A]) tell(r *round[A]) {
	if len(r.Attached)+len(r.Detached)+len(r.Missed)+len(r.Errors) > 0 {
		f.driver.Changed(&r.Changes)
	}
}

func appendAttached[A any](all []A, parts []*attachment[A]) []A {
	for _, part := range parts {
		if part != nil {
			all = append(all, part.attached)
		}
	}
	return all
}
