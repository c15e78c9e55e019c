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

// checks is how often a call is looked at before it is abandoned. It is
// abandoned at the end of its time, or one such part of it later.
const checks = 4

// leastPatience says what share of the patience is always left: one part of
// this many.
const leastPatience = 8

// Patience returns how long a call may take before it is abandoned, from how
// long it usually takes at most. Tests that wait for calls to return have more
// patience on busy machines.
var Patience = func(usual time.Duration) time.Duration { return usual }

// farewell is how long a call may still take when the context has ended.
const farewell = 50 * time.Millisecond

// Calls are calls that are made one after the other, by another goroutine than
// the caller's.
type Calls struct {
	// N is how many calls there are.
	N int
	// Patience is how long a call may take before it is abandoned. Another
	// goroutine then makes the next calls. Each abandoned call halves their
	// time: where one blocks on purpose, there may be many.
	Patience time.Duration
	// Busy gives a call more time while it uses the processor and does not
	// wait.
	Busy bool
	// Call makes a call, from 0 to N-1.
	Call func(i int)
	// Left, if set, is called by the goroutine of Make when a call has been
	// abandoned. It reports whether the next calls are to be made.
	Left func(i int) bool
	// Late, if set, is called after an abandoned call has returned,
	// by the goroutine that made it.
	Late func(i int)
}

// Make makes the calls and returns how many have been begun. All of these have
// returned or have been abandoned. When the context ends no further call is
// begun, and the one that has been is abandoned if it does not return soon.
func (c *Calls) Make(ctx context.Context) (begun int) {
	patience := c.Patience
	for begun < c.N && ctx.Err() == nil {
		w := &worker{next: begun, returned: make(chan struct{})}
		if c.Busy {
			w.thread = make(chan thread, 1)
		}
		go w.work(c)
		left := w.wait(ctx, patience)
		begun = w.next // not changed any more: it has returned, or was abandoned
		if !left {
			break
		}
		begun++
		patience = max(patience/2, c.Patience/leastPatience)
		if c.Left != nil && !c.Left(begun-1) {
			break
		}
	}
	return begun
}

// One makes one call, which may take longer than the patience if it uses the
// processor. It reports whether the call has returned. late, if not
// nil, is called by another goroutine when the call has returned after all.
func One(ctx context.Context, patience time.Duration, call, late func()) (returned bool) {
	returned = true
	calls := Calls{
		N: 1, Patience: patience, Busy: true,
		Call: func(int) { call() },
		Left: func(int) bool { returned = false; return false },
	}
	if late != nil {
		calls.Late = func(int) { late() }
	}
	return calls.Make(ctx) == 1 && returned
}

// worker makes calls until it is abandoned with one of them.
type worker struct {
	mu       sync.Mutex
	next     int  // the call that is made, or the first that was not
	ended    bool // no call is made any more
	left     bool
	end      bool          // no further call is to be begun
	returned chan struct{} // closed when all calls have returned
	thread   chan thread   // gets the thread that makes the calls; nil if it does not matter
}

func (w *worker) work(c *Calls) {
	if w.thread != nil {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		w.thread <- thisThread()
	}
	for i := w.next; i < c.N; i++ {
		c.Call(i)
		ended, left := w.step(i+1, i+1 == c.N)
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

// step notes which call is the next one, unless the worker has been left
// behind.
func (w *worker) step(next int, last bool) (ended, left bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.left {
		return false, true
	}
	w.next, w.ended = next, last || w.end
	return w.ended, false
}

// wait returns when all calls have returned, or one of them has been left
// behind.
func (w *worker) wait(ctx context.Context, patience time.Duration) (left bool) {
	timer := time.NewTimer(patience / checks)
	defer timer.Stop()
	ended := ctx.Done()
	last, unchanged := -1, 0
	var looked *clock
	for {
		select {
		case <-w.returned:
			return false
		case <-ended:
			ended = nil
			patience = min(patience, farewell)
			timer.Reset(patience / checks)
			w.mu.Lock()
			w.end = true
			w.mu.Unlock()
		case <-timer.C:
			timer.Reset(patience / checks)
			if w.thread != nil && looked == nil {
				// Not before: waiting for it wakes another thread, which takes
				// longer than most calls.
				t := <-w.thread
				looked = &clock{t, t.processorTime()}
			}
			w.mu.Lock()
			if w.next != last || looked.hasRun() {
				last, unchanged = w.next, 0
			} else if unchanged++; unchanged >= checks && !w.ended {
				w.left = true
			}
			left := w.left
			w.mu.Unlock()
			if left {
				return true
			}
		}
	}
}

// busy is how much processor time a call uses at least between two looks at it
// if it is not waiting. A file system that serves one page after the other,
// slowly, makes it use less.
const busy = time.Millisecond

// clock is the processor time of a thread.
type clock struct {
	thread thread
	last   time.Duration
}

// hasRun reports whether the thread has used the processor since it was called
// last. A nil clock does not run.
func (c *clock) hasRun() bool {
	if c == nil {
		return false
	}
	now := c.thread.processorTime()
	ran := now-c.last >= busy
	c.last = now
	return ran
}
