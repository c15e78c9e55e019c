// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"context"
	"time"

	"github.com/gousdt/gousdt/internal/abandon"
	"github.com/gousdt/gousdt/proc"
)

// What a Follower gives to files that take their time.
const (
	// aheadPatience is patience with what somebody waits for: a process that is
	// kept from running until its file is attached.
	aheadPatience = 20 * time.Second

	// maxBlockedOfOwner bounds the calls for the processes of one container or
	// user that are waited for at the same time, each of which takes a thread.
	maxBlockedOfOwner = 2

	// maxBlocked bounds such calls altogether.
	maxBlocked = 256
)

// patience is how long it may take to open or to attach a file, if that is
// spent with waiting, before the others are attached without it. The kernel
// waits for some 10 ms by itself, and longer where others attach and detach at
// the same moment.
const patience = 500 * time.Millisecond

// blocked are calls of a driver that have not returned and were left behind.
type blocked struct {
	files  map[proc.FileID]int // how many calls for each
	owners map[string]int
	total  int
	// inRound is how many of them the last round of attaching has left behind.
	inRound int
}

// shorten returns how long a call may wait. Each that has been left behind in
// the same round halves the time of the next ones: where one blocks on purpose,
// there may be many.
func (b *blocked) shorten(patience time.Duration) time.Duration {
	const most = 3
	return patience >> min(b.inRound, most)
}

// has reports whether nothing more is to be tried with a file.
func (b *blocked) has(at target) bool {
	return b.total > 0 &&
		(b.files[at.File] > 0 || b.total >= maxBlocked || b.owners[at.owner] >= maxBlockedOfOwner)
}

func (b *blocked) add(file proc.FileID, owner string, more int) {
	if b.files == nil {
		b.files, b.owners = make(map[proc.FileID]int), make(map[string]int)
	}
	b.total += more
	if b.files[file] += more; b.files[file] == 0 {
		delete(b.files, file)
	}
	if b.owners[owner] += more; b.owners[owner] == 0 {
		delete(b.owners, owner)
	}
}

// call makes a call of the driver, unless that is in vain now. If the call
// takes too long it is left behind, and the error wraps proc.ErrBlocked. late
// is called when it has returned after all, with the lock held.
func (f *Follower[F, A]) call(
	at target, patience time.Duration, call func(), late func(*round[A]),
) error {
	if f.blocked.has(at) {
		return proc.ErrBlocked
	}
	owner, began := at.owner, time.Now()
	defer func() { f.budget.spend(owner, time.Now(), time.Since(began)) }()
	if abandon.One(context.Background(), patience, call, func() {
		f.following.Lock()
		defer f.following.Unlock()
		f.blocked.add(at.File, owner, -1)
		r := &round[A]{}
		late(r)
		if !f.isStopped() { // nobody is told anything after Close
			f.finish(r)
		}
	}) {
		return nil
	}
	f.blocked.add(at.File, owner, +1)
	f.blocked.inRound++
	return proc.ErrBlocked
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
func (f *Follower[F, A]) release(id proc.FileID, file F) {
	if f.blocked.files[id] > 0 {
		go f.driver.Release(file)
	} else {
		f.driver.Release(file)
	}
}
