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
	// those that have waited for longer than patience are given up. If none
	// has, all are.
	maxWaiting = 1 << 18
	patience   = 10 * time.Second
)

// matcher finds the hit of each trace. Hits and traces come from two ring
// buffers. When a thread passes a probe, our program sends the hit and
// tail-calls the unwinder, which takes the time and sends the trace. So a trace
// belongs to the last hit of its thread before that time, provided that all
// earlier hits have been read.
type matcher struct {
	mu      sync.Mutex
	waiting map[int][]*trace.Event // by thread, the oldest first
	count   int
	newest  time.Duration // time of the newest hit that has come
	settled time.Duration // all hits up to this time have come
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

// giveUp drops the hits up to a time, and counts them as hits without a stack.
func (m *matcher) giveUp(until time.Duration) {
	for tid := range m.waiting {
		m.stats.NoStack += uint64(len(m.take(tid, until)))
	}
}

// take removes and returns the hits of a thread up to a time.
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

// end is called when no more hits will come.
func (m *matcher) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended = true
}

// match returns the last hit of a thread before its trace began, nil if there
// is none. Earlier hits of the thread have no trace.
func (m *matcher) match(
	reading context.Context, tid int, began time.Duration, session *trace.Session,
) *trace.Event {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.settled <= began && !m.ended {
		// A hit reserves its place in the ring buffer before it takes its time.
		// So a hit that is older than the newest one may still come.
		newest := m.newest
		m.mu.Unlock()
		_ = session.Drain(reading) // fails when no more hits will come
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

// counted returns the counts. Once no more hits come, those that still wait
// count as hits without a stack.
func (m *matcher) counted() Stats {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := m.stats
	if m.ended {
		s.NoStack += uint64(m.count)
	}
	return s
}
