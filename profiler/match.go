// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"sync"
	"time"

	"github.com/gousdt/gousdt/trace"
)

const (
	// maxWaiting bounds the hits whose stack has not come. If there are more,
	// those that have waited for longer than patience are given up, or all.
	maxWaiting = 1 << 18
	patience   = 10 * time.Second
)

// matcher brings hits and traces together: they come by two ring buffers. A
// thread passes a probe, our program sends the hit, and the unwinder, to which
// it tail-calls, takes the time and sends the trace. So a trace is of the last
// hit of its thread before that time, provided that all hits of before have
// been read.
type matcher struct {
	mu      sync.Mutex
	waiting map[int][]*trace.Event // by thread, the oldest first
	count   int
	newest  time.Duration // of the hits that have come
	settled time.Duration // all hits before it have come
	ended   bool
	stats   Stats
}

func (m *matcher) add(event *trace.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.newest = max(m.newest, event.Monotonic)
	if m.count >= maxWaiting {
		if m.giveUp(m.newest - patience); m.count >= maxWaiting {
			m.giveUp(m.newest)
		}
	}
	m.waiting[event.TID] = append(m.waiting[event.TID], event)
	m.count++
}

// giveUp counts the hits up to a time as without a stack.
func (m *matcher) giveUp(until time.Duration) {
	for tid := range m.waiting {
		m.stats.NoStack += uint64(len(m.take(tid, until)))
	}
}

// take takes the hits of a thread up to a time.
func (m *matcher) take(tid int, until time.Duration) []*trace.Event {
	events, n := m.waiting[tid], 0
	for n < len(events) && events[n].Monotonic <= until {
		n++
	}
	m.count -= n
	if m.waiting[tid] = events[n:]; n == len(events) {
		delete(m.waiting, tid)
	}
	return events[:n]
}

// end says that no more hits will come.
func (m *matcher) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}

// match returns the last hit of a thread before its trace began, nil if there
// is none. Those before it have no trace any more.
func (m *matcher) match(
	reading context.Context, tid int, began time.Duration, session *trace.Session,
) *trace.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settled <= began && !m.ended {
		// Hits take their time after their place in the ring buffer: what comes
		// now may be followed by one that is older than the newest.
		newest := m.newest
		m.mu.Unlock()
		_ = session.Drain(reading) // it fails when no more will come
		m.mu.Lock()
		m.settled = max(m.settled, newest)
	}
	events := m.take(tid, began)
	if len(events) == 0 {
		m.stats.NoHit++
		return nil
	}
	last := len(events) - 1
	m.stats.NoStack += uint64(last)
	m.stats.Matched++
	return events[last]
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
