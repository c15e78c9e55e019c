// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"cmp"
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/elffile"
)

// What is done for the processes of one owner, a container or user, must not
// cost the others more than their share of the time. Nothing of it is done
// under the Symbolizer's lock.
const (
	// maxReading bounds the files that are read at a time. An owner has one of
	// them.
	maxReading = 4

	// The tables of a file may take tableTime of a processor, and
	// tableTimePerByte for each byte. Those of a large browser take 2 s.
	tableTime        = 500 * time.Millisecond
	tableTimePerByte = 20 * time.Millisecond / (1 << 20)

	// leastTableTime is the time that an owner must have left to have another
	// file read.
	leastTableTime = 50 * time.Millisecond

	// leastWait is the time that callers wait for the files of an owner that
	// has kept nobody waiting, whatever the others have.
	leastWait = 100 * time.Millisecond

	// wait is how often a waiting caller looks what a reading has taken.
	waitStep = 5 * time.Millisecond
)

// The time that an owner may take: of processors to read tables and to scan
// processes, and of callers that wait for its files. All owners together may
// keep callers waiting for a quarter of the time.
var (
	tableRate = deadline.Rate{Full: 4 * time.Second, Refill: 0.05}
	scanRate  = deadline.Rate{Full: 2 * time.Second, Refill: 0.1}
	waitRate  = deadline.Rate{Full: 750 * time.Millisecond, Refill: 0.05}
	waitsRate = deadline.Rate{Full: 2 * time.Second, Refill: 0.25}
)

// left returns how much of the time an owner has left.
func left(of deadline.Owners, owner string, r deadline.Rate) time.Duration {
	return r.Full - of[owner].Taken(r, time.Now())
}

// holding is what is kept in memory of a file or a process for an owner.
type holding struct {
	owner string
	bytes int
	drop  func() // called when others need the room
}

// memory is all that is held.
type memory struct {
	held  map[*holding]struct{}
	bytes int
	most  int // 0 for the usual limit
}

// hold sets the bytes of a holding. If all take too much, the largest of the
// owner that holds most is dropped. What is held is dropped at the end by drop.
func (s *Symbolizer) hold(h *holding, owner string, bytes int, drop func()) {
	m := &s.memory
	if m.held == nil {
		m.held = make(map[*holding]struct{})
	}
	m.held[h] = struct{}{}
	m.bytes += bytes - h.bytes
	*h = holding{owner, bytes, drop}
	most := cmp.Or(m.most, maxHeldBytes)
	if s.Lines {
		most += maxHeldLines
	}
	for m.bytes > most {
		owners := make(map[string]int)
		of := owner
		for h := range m.held {
			if owners[h.owner] += h.bytes; owners[h.owner] > owners[of] {
				of = h.owner
			}
		}
		var largest *holding
		for h := range m.held {
			if h.owner == of && (largest == nil || h.bytes > largest.bytes) {
				largest = h
			}
		}
		s.drop(largest)
	}
}

// drop drops what is held, if it is.
func (s *Symbolizer) drop(h *holding) {
	if _, isHeld := s.memory.held[h]; isHeld {
		delete(s.memory.held, h)
		s.memory.bytes -= h.bytes
		h.bytes = 0
		h.drop()
	}
}

// readers read files in the background. The owner that has taken the least time
// comes first.
type readers struct {
	mutex   sync.Mutex
	waiting map[string][]*reading
	running map[string]*reading
	taken   deadline.Owners
}

// reading is one use of a reader.
type reading struct {
	owner string
	run   func(*reading) // sets used
	ended chan struct{}  // closed after run

	isRunning atomic.Bool
	used      atomic.Int64 // the time of a processor so far, in nanoseconds
}

// start starts to read for an owner, as soon as it is the owner's turn.
func (r *readers) start(owner string, run func(*reading)) *reading {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.waiting == nil {
		r.waiting, r.running = make(map[string][]*reading), make(map[string]*reading)
	}
	this := &reading{owner: owner, run: run, ended: make(chan struct{})}
	r.waiting[owner] = append(r.waiting[owner], this)
	r.next()
	return this
}

// next begins what may begin. The caller holds the mutex.
func (r *readers) next() {
	for len(r.running) < maxReading {
		now := time.Now()
		var first *reading
		for owner, all := range r.waiting {
			if r.running[owner] == nil && (first == nil || r.taken[owner].Taken(tableRate, now) <
				r.taken[first.owner].Taken(tableRate, now)) {
				first = all[0]
			}
		}
		if first == nil {
			return
		}
		r.running[first.owner] = first
		if r.waiting[first.owner] = r.waiting[first.owner][1:]; len(r.waiting[first.owner]) == 0 {
			delete(r.waiting, first.owner)
		}
		first.isRunning.Store(true)
		go func() {
			first.run(first)
			defer close(first.ended)
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.taken.Take(first.owner, tableRate, time.Now(), time.Duration(first.used.Load()))
			delete(r.running, first.owner)
			r.next()
		}()
	}
}

// allowed returns how long a processor may be used for an owner.
func (r *readers) allowed(owner string) time.Duration {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return left(r.taken, owner, tableRate)
}

// wait waits until nothing is being read, or the context ends. It reports
// whether something was.
func (r *readers) wait(ctx context.Context) (waited bool) {
	for ctx.Err() == nil {
		r.mutex.Lock()
		var any *reading
		for _, any = range r.running {
			break
		}
		r.mutex.Unlock()
		if any == nil {
			break
		}
		waited = true
		select {
		case <-any.ended:
		case <-ctx.Done():
		}
	}
	return waited
}

// close drops what has not begun.
func (r *readers) close() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	clear(r.waiting)
}

var errLate = elffile.TooLarge(errors.New("tables that take too long to read"))

// ask makes a call in the background that may never return: then its answer is
// nil. The call gives up when late says so: when it has used a processor for
// the limit. done is called with the answer, under the lock.
func ask[T any](s *Symbolizer, owner string, limit time.Duration,
	call func(late func() error) *T, done func(r *reading, answer *T),
) *reading {
	return s.readers.start(owner, func(r *reading) {
		answer := deadline.Answer(&s.unanswered, owner, deadline.Names, func() *T {
			began := deadline.ProcessorTime()
			late := func() error {
				used := deadline.ProcessorTime() - began
				r.used.Store(int64(used))
				if used > limit {
					return errLate
				}
				return nil
			}
			defer late()
			return call(late)
		})
		s.mutex.Lock()
		defer s.unlock()
		done(r, answer)
	})
}

// wait waits until a reading has ended, or has taken some time, and returns the
// time. Where processors are busy with something else, that takes longer.
func (r *reading) wait(ctx context.Context, most time.Duration) (waited time.Duration) {
	steps := time.NewTicker(waitStep)
	defer steps.Stop()
	queued := time.Duration(0)
	for last := time.Now(); ; {
		select {
		case <-r.ended:
			return queued + time.Duration(r.used.Load())
		case <-ctx.Done():
			return queued + time.Duration(r.used.Load())
		case now := <-steps.C:
			if !r.isRunning.Load() {
				queued += now.Sub(last)
			}
			last = now
			if waited = queued + time.Duration(r.used.Load()); waited >= most {
				return waited
			}
		}
	}
}

// await waits for a reading that an owner needs, for as long as the owner may
// keep others waiting. It releases the lock meanwhile.
func (s *Symbolizer) await(ctx context.Context, owner string, r *reading) {
	own := left(s.waited, owner, waitRate)
	all := waitsRate.Full - s.waits.Taken(waitsRate, time.Now())
	most := min(own, max(all, own-waitRate.Full+leastWait))
	if most <= 0 {
		return
	}
	s.unlock()
	waited := r.wait(ctx, most)
	s.mutex.Lock()
	s.waited.Take(owner, waitRate, time.Now(), waited)
	s.waits.Take(waitsRate, time.Now(), waited)
}

// unlock releases the lock, and closes the files that are not needed any more.
func (s *Symbolizer) unlock() {
	closing := s.files.closing
	s.files.closing = nil
	s.mutex.Unlock()
	calls := deadline.Calls{N: len(closing), Patience: deadline.Names, Busy: true,
		Call: func(i int) { _ = closing[i].Close() }} // they were only read
	calls.Make(context.Background())
}
