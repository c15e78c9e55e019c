// SPDX-License-Identifier: BSD-2-Clause

// Package deadline makes calls that may never return, and goes on without those
// that do not. A system call on another user's file or process can wait as long
// as that user likes, and nothing ends the wait.
package deadline

import (
	"context"
	"runtime"
	"sync"
	"time"
)

// checks is the number of times that the caller looks at a call during its
// patience.
const checks = 4

// leastPatience is the share of the patience that always remains: one part of
// this many.
const leastPatience = 8

// farewell is the time that a call may still take after the context has ended.
const farewell = 50 * time.Millisecond

// Calls are calls that another goroutine makes, one after the other.
type Calls struct {
	N int // their number
	// Patience is the time that a call may take before it is abandoned, without
	// the time that it waits for a processor. It may take up to a quarter
	// longer. Another goroutine then makes the next calls. Each abandoned call
	// halves the patience with them, down to an eighth: where one blocks on
	// purpose, there may be many.
	Patience time.Duration
	// Busy lets a call use the processor for as long as it likes: only waiting
	// counts.
	Busy bool
	// Keep, if set, reports whether a call is waited for all the same.
	Keep func(i int) bool
	// Call makes a call, from 0 to N-1.
	Call func(i int)
	// Left, if set, is called by the goroutine of Make when a call has been
	// abandoned.
	Left func(i int)
	// Late, if set, is called after an abandoned call has returned, by the
	// goroutine that made it.
	Late func(i int)
}

// Make makes the calls and returns how many have been begun. All of these have
// returned or have been abandoned. When the context ends no further call is
// begun, and the one that has been is abandoned if it does not return soon.
func (c *Calls) Make(ctx context.Context) (begun int) {
	patience := c.Patience
	for begun < c.N && ctx.Err() == nil {
		w := &worker{next: begun, returned: make(chan struct{}), thread: make(chan thread, 1)}
		go w.work(c)
		isLeft := w.wait(ctx, patience, c)
		begun = w.next // not changed any more: it has returned, or was abandoned
		if !isLeft {
			break
		}
		begun++
		patience = max(patience/2, c.Patience/leastPatience)
		if c.Left != nil {
			c.Left(begun - 1)
		}
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
		case left && c.Late != nil:
			c.Late(i)
			return
		case left:
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
