// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
)

// Recorder gets records about processes, such as those of [OpenRecords].
type Recorder interface {
	// Wait waits for records until Stop is called, and reports whether there
	// may be some.
	Wait() bool
	// Stop ends the waiting, now and later. It does nothing after Close.
	Stop()
	// Each shows each record that there is, once.
	Each(func(record []byte))
	// Close is called after Stop, when Wait has returned.
	Close()
}

type eventSource struct {
	records Recorder
	done    sync.WaitGroup

	// happened gets a value, if it has none, when there is something to take.
	happened chan struct{}

	mu    sync.Mutex
	taken happenings
	pace  pace
}

func openEventSource(record func() (Recorder, error)) (*eventSource, error) {
	if record == nil {
		record = recordEvents
	}
	records, err := record()
	if err != nil {
		return nil, err
	}
	s := &eventSource{records: records, happened: make(chan struct{}, 1)}
	s.done.Go(func() {
		for records.Wait() {
			s.mu.Lock()
			delay := s.pace.next(time.Now())
			s.mu.Unlock()
			time.Sleep(delay)
			s.gather()
		}
	})
	return s, nil
}

func (s *eventSource) gather() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken.started = false
	s.records.Each(s.taken.add)
	s.pace.gathered, s.pace.started = time.Now(), s.taken.started
	if len(s.taken.pids) == 0 && s.taken.lost == 0 {
		return
	}
	select {
	case s.happened <- struct{}{}:
	default:
	}
}

// take returns the happenings since it was called last.
func (s *eventSource) take() happenings {
	s.mu.Lock()
	defer s.mu.Unlock()
	taken := s.taken
	s.taken = happenings{}
	return taken
}

// spend notes the time of the scan of the happenings that were taken.
func (s *eventSource) spend(took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pace.scans.Take(eventRate, time.Now(), took)
}

func (s *eventSource) close() {
	s.records.Stop()
	s.done.Wait()
	s.records.Close()
}

// happenings sum up records of the kernel.
type happenings struct {
	pids    map[int]*told
	lost    uint64
	started bool // a process has started, has executed a file or has ended
}

// told sums up the records of a process.
type told struct {
	parent      int  // that has forked it, 0 if it was there before
	executed    bool // another program
	ended       bool // with its first thread
	threadEnded bool // another one than the first
	mapped      []mappedFile
	many        bool // more than are in mapped

	// Of a program that was executed, see recall.
	command string
	since   int64    // in nanoseconds after 1970
	paths   []string // of the files in mapped
}

// add adds a record. Names that change without exec matter to a filter, but
// their records come from every thread: passes find them.
func (h *happenings) add(record []byte) {
	r, text, ok := parseRecord(record)
	switch {
	case !ok || r.Kind == MemoryMapped:
		return
	case r.Kind == RecordsLost:
		h.lost++
		return
	}
	t := h.pids[r.PID]
	if t == nil {
		if h.pids == nil {
			h.pids = make(map[int]*told)
		}
		t = new(told)
		h.pids[r.PID] = t
	}
	h.started = h.started || r.Kind == ProcessExecuted || r.Kind == ProcessForked ||
		r.Kind == ProcessEnded
	switch r.Kind {
	case ProcessExecuted:
		t.executed, t.command, t.since = true, string(text), r.Time
	case ProcessForked:
		t.parent = r.Parent
	case ProcessEnded:
		t.ended = true
	case threadEnded:
		t.threadEnded = true
	case FileMapped:
		if slices.Contains(t.mapped, r.file) {
			break
		}
		if t.many = len(t.mapped) == maxMapped; !t.many {
			t.mapped = append(t.mapped, r.file)
			t.paths = append(t.paths, string(text))
		}
	}
}

// pace says how long records of the kernel are gathered before the processes
// that they name are scanned. What happens, happens in bursts: a program starts
// by mapping a dozen files. Without a delay it would be scanned for each.
//
// The delay is the least there is after a quiet time, so that a new program is
// scanned at once. It is longer while programs start and end all the time,
// because to be woken for each costs more than to scan it. It is longer still
// while programs that run already map files, and when the scans have taken more
// of the time than they are allowed.
type pace struct {
	delay    time.Duration // the last one
	gathered time.Time
	started  bool // a process has started or ended since the one before
	scans    deadline.Allowance
}

// next returns the delay for records that have begun to come.
func (p *pace) next(now time.Time) time.Duration {
	switch {
	case now.Sub(p.gathered) > eventDelay:
		p.delay = firstEventDelay
	case p.started:
		p.delay = min(2*p.delay, startsDelay)
	default:
		p.delay = min(2*p.delay, eventDelay)
	}
	return max(p.delay, min(p.scans.Wait(eventRate, now), eventDelay))
}
