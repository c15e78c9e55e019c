// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"context"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// maxBlocked bounds the calls that do not return, each of which takes a thread.
// An owner has fewer, see [fairness.Blocked].
const maxBlocked = 256

// patience is how long it may take to open or to attach a file, if that is
// spent with waiting, before the others are attached. The kernel waits for some
// 10 ms, and longer where others attach and detach.
const patience = 500 * time.Millisecond

// turn is how long a call may take, waiting or not, before others have their
// turn while it goes on.
const turn = 100 * time.Millisecond

// fewSites is how many sites a file may have at most that is attached beside a
// call that goes on. libjvm, which has the most of real files, has 750.
const fewSites = 1000

// blocked are calls of a driver that have not returned and were abandoned.
type blocked struct {
	fairness.Blocked
	files map[procwatch.FileID]int // how many calls for each
	// inRound is how many of them the last round of attaching has abandoned.
	inRound int
}

// shorten returns how long a call may wait. Each that was abandoned in the same
// round halves the time of the next ones: where one blocks on purpose, there
// may be many.
func (b *blocked) shorten(patience time.Duration) time.Duration {
	const most = 3
	return patience >> min(b.inRound, most)
}

func (b *blocked) add(file procwatch.FileID, owner string, more int) {
	if b.files == nil {
		b.files = make(map[procwatch.FileID]int)
	}
	if b.files[file] += more; b.files[file] == 0 {
		delete(b.files, file)
	}
	b.Add(owner, more)
}

// A call is what is asked of the driver.
type call[A any] struct {
	target
	part  int
	needs amounts
	do    func()
	// late is called with the lock held if do returns later than the caller.
	late func(*round[A])

	returnedLate bool // after the call was abandoned
}

// call asks the driver. If that waits for longer than the patience, the call is
// abandoned, and the error wraps proc.ErrBlocked. If it takes longer than its
// turn, it goes on, and the error is errWaits.
func (f *Follower[F, A]) call(c *call[A]) error {
	if f.blocked.files[c.File] > 0 || f.blocked.IsFull(c.owner, maxBlocked) {
		return proc.ErrBlocked
	}
	began := time.Now()
	defer func() { f.budget.spend(c.owner, time.Now(), time.Since(began)) }()
	patience := f.blocked.shorten(f.patience)
	do := func() bool {
		return deadline.One(context.Background(), patience, c.do, func() {
			f.following.Lock()
			defer f.following.Unlock()
			f.blocked.add(c.File, c.owner, -1)
			c.returnedLate = true
			r := &round[A]{}
			c.late(r)
			if !f.isStopped() { // nobody is told anything after Close
				f.finish(r)
			}
			if len(r.unwanted) > 0 {
				go f.driver.Detach(r.unwanted) // the kernel detaches whatever it says
			}
		})
	}
	returned := true
	if f.running.Load() == 0 { // the caller of SyncAll waits for all of it
		returned = do()
	} else {
		done := make(chan bool, 1)
		go func() { done <- do() }()
		timer := time.NewTimer(f.turn)
		defer timer.Stop()
		select {
		case returned = <-done:
		case <-timer.C:
			f.goOn(c, done)
			return errWaits
		}
	}
	if returned {
		return nil
	}
	f.blocked.add(c.File, c.owner, +1)
	f.blocked.inRound++
	return proc.ErrBlocked
}

// goOn lets a call go on while others have their turn. done gets whether it has
// returned. Close waits for it.
func (f *Follower[F, A]) goOn(c *call[A], done <-chan bool) {
	began := time.Now()
	f.goesOn[c.File] = c.owner
	f.budget.reserve(c.owner, c.needs, 1)
	f.closing.Go(func() {
		returned := <-done
		r := f.ended(c, returned, time.Since(began))
		_ = f.driver.Detach(r.unwanted) // the kernel detaches whatever it says
		f.tryAgain(WithTime)
	})
}

// ended takes the outcome of a call that went on.
func (f *Follower[F, A]) ended(c *call[A], returned bool, took time.Duration) *round[A] {
	f.following.Lock()
	defer f.following.Unlock()
	delete(f.goesOn, c.File)
	f.budget.reserve(c.owner, c.needs, -1)
	f.budget.spend(c.owner, time.Now(), took)
	r := &round[A]{}
	switch {
	case returned:
		c.late(r)
	default:
		f.blocked.add(c.File, c.owner, +1)
		if !c.returnedLate {
			f.fail(c.part, c.target, proc.ErrBlocked, r)
		}
	}
	if !f.isStopped() {
		f.finish(r)
	}
	return r
}

// isBeside reports whether a part of a file has to wait for a call that goes
// on: one for the same file or owner, and if it takes long itself any.
func (f *Follower[F, A]) isBeside(part int, at target) bool {
	for file, owner := range f.goesOn {
		if file == at.File || owner == at.owner {
			return true
		}
	}
	file, isOpen := f.files[at.File]
	return len(f.goesOn) > 0 && part != WholeFile && isOpen &&
		f.driver.Sites(part, file) > fewSites
}

// isWanted reports whether a target is still wanted: its process is there, and
// the file has not been written to.
func (f *Follower[F, A]) isWanted(at target) bool {
	if f.isStopped() {
		return false
	}
	if source := f.sources[at.File]; source != nil && !source.HasSameSites(at.pair.File) {
		return false
	}
	for _, pair := range f.watcher.ProcessFiles() {
		if inProcess(pair) == at.Place || inEveryProcess(pair) == at.Place {
			return true
		}
	}
	return false
}

// release closes a file. It does not wait for calls that use the file.
func (f *Follower[F, A]) release(id procwatch.FileID, file F) {
	if _, goesOn := f.goesOn[id]; goesOn || f.blocked.files[id] > 0 {
		go f.driver.Release(file)
	} else {
		f.driver.Release(file)
	}
}
