// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"errors"
	"os"
	"time"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// maxRefused bounds the memory of files that are too large to be opened again
// and again. No tool chain makes such a file.
const maxRefused = 4096

// attach attaches what is not attached yet, one part after the other.
func (f *Follower[F, A]) attach(targets []target, r *round[A]) {
	f.until, f.blocked.inRound = time.Now().Add(maxAttachRound), 0
	defer func() { f.until = time.Time{} }()
	files := make([]F, 0, len(targets))
	opened := targets[:0:0]
	for _, at := range f.budget.inTurn(targets, time.Now()) {
		if file, ok := f.open(at, r); ok {
			files, opened = append(files, file), append(opened, at)
		}
	}
	for part := range f.opts.Parts {
		for i, at := range opened {
			f.attachPart(part, files[i], at, r)
		}
	}
	for _, at := range opened {
		f.closeUnattached(at.File)
	}
	f.closeGivenUp()
}

// open returns the file of a target, opened once for all its processes.
func (f *Follower[F, A]) open(at target, r *round[A]) (file F, ok bool) {
	if f.isStopped() {
		return file, false
	}
	if file, ok = f.files[at.File]; ok {
		return file, true
	}
	if _, ok := f.refused[at.File]; ok || f.mustWait(WholeFile, at) || f.isOverShare(at, r) {
		return file, false
	}
	file, err := f.openOnce(at)
	if f.lacksRoom(err) && f.makeRoom(r) {
		file, err = f.openOnce(at)
	}
	if err != nil {
		f.fail(WholeFile, at, err, r)
		return file, false
	}
	f.files[at.File] = file
	return file, true
}

func (f *Follower[F, A]) openOnce(at target) (F, error) {
	var file F
	var failed error
	err := f.call(&call[A]{target: at, part: WholeFile,
		do: func() { file, failed = f.driver.Open(at.pair) },
		late: func(r *round[A]) {
			switch _, opened := f.files[at.File]; {
			case failed != nil:
				f.fail(WholeFile, at, failed, r)
			case opened || !f.isWanted(at):
				f.driver.Release(file)
			default:
				f.files[at.File] = file
				f.attach([]target{at}, r)
			}
		}})
	if err != nil {
		return *new(F), err // the call may still set the others
	}
	return file, failed
}

func (f *Follower[F, A]) attachPart(part int, file F, at target, r *round[A]) {
	if f.isStopped() || f.isAttached(part, at.Place) || f.mustWait(part, at) {
		return
	}
	needs := f.needs(attempt{at.Place, part}, file)
	if err := f.share(at, needs, r); err != nil {
		f.fail(part, at, err, r)
		return
	}
	attached, ok, err := f.attachOnce(part, file, at)
	if f.lacksRoom(err) && f.makeRoom(r) {
		attached, ok, err = f.attachOnce(part, file, at)
	}
	for err != nil && f.driver.Retry(err) == WithShare {
		if done, _ := f.takeAway(sites, at.owner, needs[sites]); !done {
			break // it is tried again when that is done
		}
		attached, ok, err = f.attachOnce(part, file, at)
	}
	switch {
	case err != nil:
		f.fail(part, at, err, r)
	case ok:
		f.add(part, at, file, attached, r)
	}
}

func (f *Follower[F, A]) attachOnce(part int, file F, at target) (A, bool, error) {
	var attached A
	var ok bool
	var failed error
	err := f.call(&call[A]{target: at, part: part, needs: f.needs(attempt{at.Place, part}, file),
		do: func() { attached, ok, failed = f.driver.Attach(part, file, at.pair, at.Process.PID) },
		late: func(r *round[A]) {
			switch {
			case failed != nil:
				f.fail(part, at, failed, r)
			case ok && (f.isAttached(part, at.Place) || !f.isWanted(at)):
				r.unwanted = append(r.unwanted, attached)
			case ok:
				f.add(part, at, file, attached, r)
			}
		}})
	if err != nil {
		return *new(A), false, err // the call may still set the others
	}
	return attached, ok, failed
}

func (f *Follower[F, A]) isAttached(part int, place Place) bool {
	parts := f.attached[place]
	return parts != nil && parts[part] != nil
}

// needs returns what it takes to attach a part of a file. How many descriptors
// is not known before it has been attached: one at least.
func (f *Follower[F, A]) needs(what attempt, file F) amounts {
	needs := amounts{sites: f.driver.Sites(what.part, file), descriptors: 1}
	for _, part := range []int{what.part, WholeFile} {
		if failed := f.failed.failed[attempt{what.Place, part}]; failed != nil {
			needs[descriptors] = max(needs[descriptors], failed.needs[descriptors])
		}
	}
	return needs
}

func (f *Follower[F, A]) add(part int, at target, file F, attached A, r *round[A]) {
	a := &attachment[A]{attached: attached, mappings: at.pair.Mappings, pair: at.pair,
		owner: at.owner, sites: f.driver.Sites(part, file)}
	f.budget.take(at.Place, a.owner,
		amounts{sites: a.sites, descriptors: f.driver.Descriptors(attached)})
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.attached[at.Place] == nil {
		f.attached[at.Place] = make([]*attachment[A], f.opts.Parts)
	}
	f.attached[at.Place][part] = a
	r.Attached = append(r.Attached, attached)
}

func (f *Follower[F, A]) lacksRoom(err error) bool {
	return err != nil && f.driver.Retry(err) >= WithRoom
}

// makeRoom detaches what has disappeared and what lingers. It reports whether
// there was anything.
func (f *Follower[F, A]) makeRoom(r *round[A]) bool {
	room := &round[A]{gone: r.gone}
	r.gone = nil
	f.detachGone(room)
	f.lingering.endAll(func(file procwatch.FileID) { f.leave(file, room) })
	return f.detachNow(room)
}

// fail notes that a part of a target could not be attached, or the file not be
// opened. It is told unless the process has ended or it has been told before,
// and tried again if it may succeed.
func (f *Follower[F, A]) fail(part int, at target, err error, r *round[A]) {
	if errors.Is(err, os.ErrClosed) {
		return // who closes the follower soon, or has closed it
	}
	if errors.Is(err, errWaits) {
		f.failed.fail(attempt{at.Place, part}, at.owner, err, WithTime)
		return
	}
	if errors.Is(err, elffile.ErrTooLarge) {
		// To find that out takes a second, and there may be many processes.
		if len(f.refused) >= maxRefused {
			clear(f.refused)
		}
		f.refused[at.File] = struct{}{}
	}
	when := f.driver.Retry(err)
	switch {
	case errors.Is(err, proc.ErrBlocked):
		when = Later
	case isShare(err):
		when = WithShare
	}
	if !at.isInEveryProcess() {
		if running, err := at.pair.Process.IsRunning(); err == nil && !running {
			if n := len(r.Missed); n == 0 || r.Missed[n-1] != at.pair {
				r.Missed = append(r.Missed, at.pair)
			}
			return
		}
	}
	if f.failed.fail(attempt{at.Place, part}, at.owner, err, when) {
		r.Errors = append(r.Errors, f.explain(part, at.pair, err))
	}
}

func (f *Follower[F, A]) explain(part int, pair *procwatch.ProcessFile, err error) error {
	return f.driver.Explain(part,
		&WatchError{Path: pair.Path, Process: pair.Process, Err: inWatch(err)})
}

// tryAgain tries to attach what could not be attached, with WithRoom only what
// lacked room.
func (f *Follower[F, A]) tryAgain(when When) {
	f.following.Lock()
	defer f.following.Unlock()
	if when == WithTime {
		f.waits = nil // what still has to wait sets it again
	}
	if f.isStopped() || f.failed.len() == 0 {
		return
	}
	r := &round[A]{}
	f.failed.again(f.watcher.ProcessFiles(), when, func(again attempt, pair *procwatch.ProcessFile) {
		at := newTarget(again.Place, pair)
		if again.part == WholeFile {
			f.attach([]target{at}, r)
		} else if file, ok := f.files[at.File]; ok {
			f.attachPart(again.part, file, at, r)
			f.closeUnattached(at.File)
			f.closeGivenUp()
		}
	})
	f.finish(r)
}
