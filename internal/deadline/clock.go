// SPDX-License-Identifier: BSD-2-Clause

package deadline

import "time"

// busy is how much of the processor a call uses between two looks at it if it
// is not waiting. Whoever trickles the pages of a file makes it use less.
const busy = time.Millisecond

// clock is the processor time of a thread.
type clock struct {
	thread thread
	last   time.Duration
}

func newClock(t thread) *clock { return &clock{t, t.processorTime()} }

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
