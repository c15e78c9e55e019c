// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"sync"
	"time"

	"github.com/gousdt/gousdt/trace"
)

const (
	// maxWaiting bounds the hits whose stack has not come. Stacks come
	// soon after; if there are more hits than this in between, some are lost.
	maxWaiting = 1 << 18

	// patience is how long a trace waits for its hit, which is in the ring
	// buffer before the unwinder begins, and only has to be read.
	patience = 200 * time.Millisecond

	// near is how soon after its hit a trace begins, unless the thread was
	// interrupted in between. An older hit may be one whose trace was not sent,
	// so it is only taken if no other one comes.
	near = 100 * time.Microsecond
)

// matcher brings hits and traces together: they come by two ring buffers. In
// each, those of a thread are in the order of time, and a hit comes before its
// trace.
type matcher struct {
	mu      sync.Mutex
	come    *sync.Cond
	waiting map[int][]*trace.Event // by thread, the oldest first
	count   int
	ended   bool
	stats   Stats
}

func (m *matcher) init() {
	m.come = sync.NewCond(&m.mu)
	m.waiting = make(map[int][]*trace.Event)
}

// add adds a hit.
func (m *matcher) add(event *trace.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.count >= maxWaiting {
		m.stats.NoStack++
		return
	}
	m.waiting[event.TID] = append(m.waiting[event.TID], event)
	m.count++
	m.come.Broadcast()
}

// end says that no more hits will come.
func (m *matcher) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
	m.come.Broadcast()
}

// match returns the last hit of a thread before a trace began. Those before it
// have no trace any more.
func (m *matcher) match(tid int, began time.Duration) *trace.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	late := false
	var timer *time.Timer
	for {
		events, n := m.waiting[tid], 0
		for n < len(events) && events[n].Monotonic <= began {
			n++
		}
		if n > 0 && (m.ended || late || began-events[n-1].Monotonic < near) {
			if timer != nil {
				timer.Stop()
			}
			m.stats.NoStack += uint64(n - 1)
			m.stats.Matched++
			m.count -= n
			if m.waiting[tid] = events[n:]; len(events) == n {
				delete(m.waiting, tid)
			}
			return events[n-1]
		}
		if m.ended || late {
			m.stats.NoHit++
			return nil
		}
		if timer == nil {
			timer = time.AfterFunc(patience, func() {
				m.mu.Lock()
				defer m.mu.Unlock()
				late = true
				m.come.Broadcast()
			})
		}
		m.come.Wait()
	}
}

// counted returns the counts. Once no more hits come, those that wait count as
// without a stack.
func (m *matcher) counted() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	if m.ended {
		s.NoStack += uint64(m.count)
	}
	return s
}
