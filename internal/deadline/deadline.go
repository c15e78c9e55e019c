// SPDX-License-Identifier: BSD-2-Clause

// Package deadline makes calls that may never return, and goes on without those
// that do not. A system call on another user's file or process can wait as long
// as that user likes, and nothing ends the wait.
//
// A call is made for an owner: the container or user whose process or file it
// is about. It has a patience. When that is over it is abandoned: it goes on in
// the background, and holds a thread until it is answered. [Unanswered] counts
// such calls, of which an owner may have few. A late answer goes to Late, as
// the asker may not need it any more. The time that a call takes without
// waiting for a processor is its owner's.
//
// What one owner does must not cost the others more than their share. So each
// has an [Allowance] of the time, which refills as time passes: an owner that
// has taken more waits. [OwnerOf] says whose a process is.
package deadline

import (
	"cmp"
	"context"
	"runtime"
	"sync"
	"time"
)

// How long callers wait. A call that answers takes less than a millisecond, or
// longer from a disk that sleeps or on a machine that is short of everything.
const (
	// Memory is for reading a process's own memory, or its environment, which
	// is there. It waits for a page fault of a file whose server has stopped.
	Memory = 200 * time.Millisecond

	// Inode is for asking the kernel whether two files are one inode. It waits
	// for processes that map them.
	Inode = 300 * time.Millisecond

	// Names is for what only gives addresses their names: the mappings of a
	// process, and the files among them.
	Names = 250 * time.Millisecond

	// File is for finding, opening and reading a file that a process maps, and
	// for one call of the kernel that attaches. It waits for some 10 ms there,
	// and longer where others attach and detach.
	File = 500 * time.Millisecond

	// Tables is for the symbol tables of a file, which may be large.
	Tables = time.Second
)

// checks is the number of times that the caller looks at a call during its
// patience.
const checks = 4

// mostHalvings bounds how often abandoned calls halve the patience with the
// next ones: where one blocks on purpose, there may be many.
const mostHalvings = 3

// Halved returns the patience that remains after some calls were abandoned.
func Halved(patience time.Duration, abandoned int) time.Duration {
	return patience >> min(abandoned, mostHalvings)
}

// farewell is the time that a call may still take after the context has ended.
const farewell = 50 * time.Millisecond

// Calls are calls that another goroutine makes, one after the other.
type Calls struct {
	N int // their number
	// Patience is the time that a call may take before it is abandoned, without
	// the time that it waits for a processor. It may take up to a quarter
	// longer. Another goroutine then makes the next calls, with a patience that
	// is Halved.
	Patience time.Duration
	// Busy lets a call use the processor for as long as it likes: only waiting
	// counts.
	Busy bool
	// Keep, if set, reports whether a call is waited for all the same.
	Keep func(i int) bool
	// Call makes a call, from 0 to N-1.
	Call func(i int)

	// Unanswered, if set, counts the abandoned calls, each for its Owner, which
	// is asked for then.
	Unanswered *Unanswered
	Owner      func(i int) string
	// Left, if set, is called by the goroutine of Make when a call has been
	// abandoned and counted.
	Left func(i int)
	// Late, if set, is called after an abandoned call has returned and Left
	// too, by the goroutine that made the call. Freed follows when it does not
	// count any more.
	Late, Freed func(i int)
}

// Make makes the calls and returns how many have been begun. All of these have
// returned or have been abandoned. When the context ends no further call is
// begun, and the one that has been is abandoned if it does not return soon.
func (c *Calls) Make(ctx context.Context) (begun int) {
	for abandoned := 0; begun < c.N && ctx.Err() == nil; abandoned++ {
		w := &worker{next: begun, returned: make(chan struct{}), thread: make(chan thread, 1),
			noted: make(chan string, 1)}
		go w.work(c)
		isLeft := w.wait(ctx, Halved(c.Patience, abandoned), c)
		begun = w.next // not changed any more: it has returned, or was abandoned
		if !isLeft {
			break
		}
		owner := ""
		if c.Owner != nil {
			owner = c.Owner(begun)
		}
		c.Unanswered.add(owner, 1)
		if c.Left != nil {
			c.Left(begun)
		}
		w.noted <- owner
		begun++
	}
	return begun
}

// One makes one call, which may use the processor for longer than the patience.
// It reports whether the call has returned. late, if not nil, is called by
// another goroutine if the call returns after that.
func One(ctx context.Context, patience time.Duration, call, late func()) (returned bool) {
	returned = true
	calls := Calls{
		N: 1, Patience: patience, Busy: true,
		Call: func(int) { call() },
		Left: func(int) { returned = false },
	}
	if late != nil {
		calls.Late = func(int) { late() }
	}
	return calls.Make(ctx) == 1 && returned
}

// Unanswered counts the calls that were abandoned and have not returned. It may
// be used by several goroutines at once.
type Unanswered struct {
	// Most bounds the calls for all owners together; 0 is mostUnanswered.
	Most int

	mu     sync.Mutex
	total  int
	owners map[string]int
}

// mostUnanswered bounds the threads that calls hold: Go ends a program that has
// 10,000. mostOfOwner bounds those for one owner.
const (
	mostUnanswered = 512
	mostOfOwner    = 2
)

// IsFull reports whether no further call is to be made for an owner before one
// returns.
func (u *Unanswered) IsFull(owner string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total >= cmp.Or(u.Most, mostUnanswered) || u.owners[owner] >= mostOfOwner
}

// Count returns the number of calls, and of owners that have some.
func (u *Unanswered) Count() (calls, owners int) {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.total, len(u.owners)
}

func (u *Unanswered) add(owner string, more int) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.owners == nil {
		u.owners = make(map[string]int)
	}
	u.total += more
	if u.owners[owner] += more; u.owners[owner] == 0 {
		delete(u.owners, owner)
	}
}

// Ask makes calls for one owner, which may use the processor for longer than
// the patience, and returns the numbers of those that have returned. Each owner
// of unanswered calls halves the patience. No more calls are made when the
// owner has too many. late, if not nil, is called for one that returns later.
func (u *Unanswered) Ask(
	owner string, patience time.Duration, n int, call, late func(i int),
) (returned []int) {
	_, owners := u.Count()
	if n == 0 || u.IsFull(owner) {
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	left := make(map[int]bool)
	calls := Calls{
		N: n, Patience: Halved(patience, owners), Busy: true, Call: call, Late: late,
		Unanswered: u, Owner: func(int) string { return owner },
		Left: func(i int) {
			left[i] = true
			if u.IsFull(owner) {
				cancel()
			}
		},
	}
	for i := range calls.Make(ctx) {
		if !left[i] {
			returned = append(returned, i)
		}
	}
	return returned
}

// Answer makes a call as Ask does, and returns its answer: the zero value if it
// has not returned.
func Answer[T any](u *Unanswered, owner string, patience time.Duration, call func() T) (answer T) {
	var late T // which an abandoned call writes whenever it likes
	if len(u.Ask(owner, patience, 1, func(int) { late = call() }, nil)) == 1 {
		answer = late
	}
	return answer
}

// A Pending call goes on while its asker does something else.
type Pending struct {
	// Over is closed when the call has returned, or has been abandoned: then
	// the next two are set. Took is the owner's time.
	Over       <-chan struct{}
	IsReturned bool
	Took       time.Duration
	// Answered is closed when an abandoned call has returned, and does not
	// count any more.
	Answered <-chan struct{}
}

// Begin begins a call for an owner, which may use the processor for longer than
// the patience.
func (u *Unanswered) Begin(owner string, patience time.Duration, call func()) *Pending {
	over, answered := make(chan struct{}), make(chan struct{})
	p := &Pending{Over: over, Answered: answered, IsReturned: true}
	var took time.Duration // by the call, once that has returned
	began := time.Now()
	calls := Calls{
		N: 1, Patience: patience, Busy: true,
		Unanswered: u, Owner: func(int) string { return owner },
		Call: func(int) {
			watch := StartStopwatch()
			call()
			took = watch.Took()
		},
		Left:  func(int) { p.IsReturned = false },
		Freed: func(int) { close(answered) },
	}
	go func() {
		defer close(over)
		if calls.Make(context.Background()); p.IsReturned {
			p.Took = took
		} else {
			p.Took = time.Since(began)
		}
	}()
	return p
}

// A Stopwatch measures how long something takes without the time that it waits
// for a processor: on a busy machine that is most of the time, and nobody's
// doing. It is for a goroutine that does not leave its thread, such as that of
// a call.
type Stopwatch struct {
	began          time.Time
	ready, running time.Duration // of the thread before
}

// StartStopwatch begins to measure.
func StartStopwatch() Stopwatch {
	self := thisThread()
	return Stopwatch{time.Now(), self.active(false), self.processorTime()}
}

// Took returns the time since StartStopwatch.
func (s Stopwatch) Took() time.Duration {
	self := thisThread()
	all, ready := time.Since(s.began), max(0, self.active(false)-s.ready)
	// The kernel adds a wait when it is over, and so it may have begun before.
	return max(all-ready, min(all, self.processorTime()-s.running))
}

// worker makes calls until it is abandoned with one of them.
type worker struct {
	thread   chan thread   // gets the thread that makes the calls
	returned chan struct{} // closed when all calls have returned
	noted    chan string   // gets the owner of the call with which it is abandoned

	mu    sync.Mutex
	next  int  // the call that is made, or the first that was not
	left  bool // it is abandoned
	end   bool // no further call is to be begun
	ended bool // no call is made any more
}

func (w *worker) work(c *Calls) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	w.thread <- thisThread()
	for i := w.next; ; i++ {
		c.Call(i)
		w.mu.Lock()
		left := w.left
		if !left {
			w.next, w.ended = i+1, w.end || i+1 == c.N
		}
		ended := w.ended
		w.mu.Unlock()
		switch {
		case left:
			owner := <-w.noted
			if c.Late != nil {
				c.Late(i)
			}
			c.Unanswered.add(owner, -1)
			if c.Freed != nil {
				c.Freed(i)
			}
			return
		case ended:
			close(w.returned)
			return
		}
	}
}

// wait returns when all calls have returned, or one of them is abandoned.
func (w *worker) wait(ctx context.Context, patience time.Duration, c *Calls) (left bool) {
	timer := time.NewTimer(patience / checks)
	defer timer.Stop()
	ended := ctx.Done()
	var self *thread
	var before time.Time
	var activeBefore time.Duration
	last, waited := -1, time.Duration(0)
	for {
		select {
		case <-w.returned:
			return false
		case <-ended:
			ended = nil
			patience, waited = min(patience, farewell), 0
			w.mu.Lock()
			w.end = true
			w.mu.Unlock()
		case <-timer.C:
			if self == nil {
				// The thread is asked for only now: waiting for it wakes
				// another one, which takes longer than most calls.
				made := <-w.thread
				self = &made
			}
			now, active := time.Now(), self.active(c.Busy)
			// A wait for a processor is only known when it is over, so that an
			// interval may have been active for longer than it took. If this
			// goroutine is late, so may be the other one: no interval counts
			// for much more than it was meant to take.
			waited = max(0, waited+min(now.Sub(before), 9*patience/(8*checks))-(active-activeBefore))
			before, activeBefore = now, active
			w.mu.Lock()
			if w.next != last {
				last, waited = w.next, 0
			}
			w.left = waited >= patience && !w.ended && (c.Keep == nil || ended == nil || !c.Keep(w.next))
			left := w.left
			w.mu.Unlock()
			if left {
				return true
			}
		}
		timer.Reset(patience / checks)
	}
}

// InTurns is a lock that goroutines get in the order in which they ask for it,
// and for which they need not wait longer than a context lasts.
type InTurns chan struct{} // holds a value while it is locked

// NewInTurns returns a lock that nobody holds.
func NewInTurns() InTurns { return make(InTurns, 1) }

// Lock waits for the lock.
func (l InTurns) Lock() { l <- struct{}{} }

// LockWhile waits for the lock until the context ends, whose error it returns
// then.
func (l InTurns) LockWhile(ctx context.Context) error {
	select {
	case l <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Unlock gives the lock to who asked first.
func (l InTurns) Unlock() { <-l }
