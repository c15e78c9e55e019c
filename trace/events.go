// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"context"
	"errors"
	"iter"
	"math"
	"os"
	"time"

	"github.com/cilium/ebpf/ringbuf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

const (
	// lossInterval is how often the reader asks for losses while events come.
	// Asking costs a few microseconds.
	lossInterval = 50 * time.Millisecond

	// clockInterval is how often the difference between the clocks is measured.
	clockInterval = time.Second

	// clockPrecision is how long it may take to read the clocks before that is
	// tried again, at most clockTries times.
	clockPrecision = 10 * time.Microsecond
	clockTries     = 5
)

// Events iterates over the hits, in the order in which they were recorded.
// Breaking out of the loop loses nothing: a later iteration goes on there.
// There can be one iteration at a time.
//
// Each event is the caller's own, to keep or to pass on. With
// [SessionOptions.ReuseEvents] an event is valid until the next one only.
//
// The iteration ends without an error when the context is done (what has been
// sent by then waits for the next iteration), after [Session.Detach] when all
// that was sent has come, and after [Session.Close]. While the events come too
// fast to read all of them, some more may come after the context is done.
//
// An error comes without an event. A [*LostError] says that events were lost;
// the iteration goes on. Other errors end it: the session has
// SessionOptions.NoEvents set, another iteration is going on, or the ring
// buffer cannot be read.
//
// The sites of a closed [Attachment] are kept until its last events have been
// read. So where attachments come and go, the events should be read, or
// SessionOptions.NoEvents be set.
func (s *Session) Events(ctx context.Context) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		if s.reader == nil {
			yield(nil, errors.New("the session has SessionOptions.NoEvents set: it sends none"))
			return
		}
		if !s.reading.TryLock() {
			yield(nil, errors.New("another iteration over the session's events is going on"))
			return
		}
		defer s.reading.Unlock()
		if ctx.Err() != nil {
			return
		}
		cancel := context.AfterFunc(ctx, func() {
			s.memory.interrupt()
			// It fails only if the reader is closed, and then the loop ends
			// anyway.
			_ = s.reader.Flush()
		})
		defer cancel()
		r := &reading{Session: s, yield: yield, ctx: ctx}
		if s.memory.use() {
			r.memory = s.memory
			defer func() {
				r.decoder.settle()
				r.memory.done()
			}()
		}
		r.setClock()
		r.loop()
	}
}

// reading is an iteration.
type reading struct {
	*Session
	yield   func(*Event, error) bool
	ctx     context.Context
	memory  *ringMemory // nil where there is none
	record  ringbuf.Record
	checked time.Time // when losses were asked for
	clocks  time.Time // when the clocks were compared
	unasked bool      // events have come since
	ending  bool      // no event will come any more
	count   uint      // of events that have followed each other
	lookAt  uint64    // position in the memory at which to call look
}

// past is a deadline that has passed: a read does not wait.
var past = time.Unix(1, 0)

func (r *reading) loop() {
	for r.readMemory() && r.drained() && r.wait() {
	}
}

// wait waits for an event and hands it on. Where there is no memory to read it
// does so with all that follow. It reports whether to go on.
func (r *reading) wait() bool {
	for {
		err := r.reader.ReadInto(&r.record)
		switch {
		case err == nil:
			if r.memory != nil {
				r.memory.skip()
				return r.hand(r.record.RawSample)
			}
			if !r.hand(r.record.RawSample) {
				return false
			}
			if r.record.Remaining > 0 {
				continue
			}
			r.freeSites()
			return true
		case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, ringbuf.ErrFlushed):
			if r.memory != nil {
				r.memory.skip() // it may have gone past discarded records
			} else {
				r.freeSites()
			}
			return true
		case errors.Is(err, os.ErrClosed):
			return false
		default:
			r.yield(nil, err)
			return false
		}
	}
}

// hand hands on the event of a record. It reports whether to go on.
func (r *reading) hand(record []byte) bool {
	event, err := r.decoder.decode(record)
	r.unasked = true
	if !r.yield(event, err) || r.ctx.Err() != nil {
		return false
	}
	r.count++
	return r.count%eventsPerCheck != 0 || r.check()
}

// check does what is done from time to time while events come. It reports
// whether to go on.
func (r *reading) check() bool {
	now := time.Now()
	r.checkClock(now)
	return !r.isDue(now) || r.reportLosses()
}

// drained is called when the ring buffer was empty. It reports whether to go
// on.
func (r *reading) drained() bool {
	if r.ctx.Err() != nil {
		return false
	}
	if r.ending {
		r.reportLosses()
		return false
	}
	now := time.Now()
	r.checkClock(now)
	ending := r.silent.Load()
	if r.isDue(now) && !r.reportLosses() {
		return false
	}
	if ending {
		// Events that were sent before may have arrived after the ring buffer
		// was empty: read once more.
		r.ending = true
		r.reader.SetDeadline(past)
		return true
	}

	var deadline time.Time
	if r.unasked {
		deadline = r.checked.Add(lossInterval)
	}
	if r.opts.Delay > 0 && (deadline.IsZero() || r.opts.Delay < lossInterval) {
		deadline = now.Add(r.opts.Delay)
	}
	r.reader.SetDeadline(deadline)
	return true
}

// isDue reports whether it is time to ask for losses. There can be losses only
// if events have come.
func (r *reading) isDue(now time.Time) bool {
	if !r.unasked || now.Sub(r.checked) < lossInterval {
		return false
	}
	r.unasked, r.checked = false, now
	return true
}

// reportLosses reports whether to go on.
func (r *reading) reportLosses() bool {
	lost, err := r.countOf(bpfgen.CounterEvents)()
	switch {
	case errors.Is(err, os.ErrClosed):
		return false
	case err != nil:
		return r.yield(nil, err)
	case lost == r.reported:
		return true
	}
	more := lost - r.reported
	r.reported = lost
	return r.yield(nil, &LostError{Events: more})
}

// freeSites is called when the ring buffer was empty. No program sends events
// any more for sites that had been retired when it was so the last time.
func (r *reading) freeSites() {
	r.mu.Lock()
	retired := r.retired
	r.retired = nil
	r.mu.Unlock()
	if len(r.leaving) > 0 {
		r.sites.remove(r.leaving)
		r.decoder.forget(r.leaving)
	}
	r.leaving = retired
}

func (r *reading) checkClock(now time.Time) {
	if now.Sub(r.clocks) >= clockInterval {
		r.setClock()
	}
}

// setClock measures the difference between the clocks. They are read one after
// the other, and the thread may be interrupted in between: of a few tries the
// shortest counts. The kernel's monotonic clock is that of the initial time
// namespace.
func (r *reading) setClock() {
	r.clocks = time.Now()
	ahead := ownClockOffsets().monotonic.Nanoseconds()
	shortest := int64(math.MaxInt64)
	for range clockTries {
		var before, after, wall unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			return
		}
		took := after.Nano() - before.Nano()
		if took < shortest {
			shortest = took
			r.decoder.wall = wall.Nano() - (before.Nano() - ahead) - took/2
		}
		if took < int64(clockPrecision) {
			return
		}
	}
}

// counter returns the sum of a counter over all processors. It must be called
// within [Session.use].
func (s *Session) counter(c bpfgen.Counter) (uint64, error) {
	var each []uint64
	if err := s.counters.Lookup(uint32(c), &each); err != nil {
		return 0, explain("reading a counter", err)
	}
	var sum uint64
	for _, n := range each {
		sum += n
	}
	return sum, nil
}

// countOf returns a function that returns the sum of a counter.
func (s *Session) countOf(c bpfgen.Counter) func() (uint64, error) {
	return func() (n uint64, err error) {
		err = s.use(func() error {
			n, err = s.counter(c)
			return err
		})
		return n, err
	}
}
