// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/defs"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// Event is one hit of a probe. It is the caller's own, to keep and to change,
// unless EventOptions.ReuseEvents is set. Only its Site is shared with other
// events, and must not be changed.
type Event struct {
	// Time is the time of the hit by the wall clock. It is computed from
	// Monotonic.
	Time time.Time
	// Monotonic is the time of the hit by CLOCK_MONOTONIC of the initial time
	// namespace: since boot, without suspensions.
	Monotonic time.Duration

	// PID and TID are the numbers of the process and the thread in the PID
	// namespace of the tracing process. They are 0 for a process that has no
	// number there, such as the host's if the tracing process is in a
	// container.
	PID, TID int
	// Command is the name of the thread, at most 15 bytes. The bytes are
	// arbitrary: escape them before they reach a terminal.
	Command string
	// CPU is the number of the processor.
	CPU int

	// CgroupID is the ID of the control group in the hierarchy of version 2,
	// the inode of its directory, if SessionOptions.Containers is set.
	CgroupID uint64

	// Weight is the number of hits that the event stands for: itself and, with
	// EventOptions.SampleEvery, the hits of its process and site before it that
	// became no event. To estimate how many hits have some property, add up the
	// weights of the events that have it. A process or site that is hit rarely
	// may have no event: see Losses.Unrepresented.
	Weight uint64

	// Probe is PROVIDER:NAME. Names are arbitrary bytes: escape them before
	// they reach a terminal. Site.Provider and Site.Name are the parts.
	Probe string
	// Site is the place that was hit. Attachment.Sites has the same one.
	Site *Site

	// Args are all arguments of the probe.
	Args []Value

	// Start is the start of the call that this hit ends, with
	// EventOptions.Spans, and otherwise nil. It has a Stack only with
	// StartStacks, and its CPU is -1. If there were too many calls at once to
	// keep it, its arguments are Unreadable, and its TID is 0 if the call may
	// have started in another thread.
	Start *Event
	// Duration is the time since Start.
	Duration time.Duration
	// Failed reports whether the call has ended at a probe that the
	// [Latency].Pair, or the definition of the call, has for calls that fail,
	// or has Ended.
	Failed bool
	// Ended, with EventOptions.Exits, is how the thread ended inside the call:
	// "killed by SIGKILL", "exited with status 1", "thread exited" (and its
	// process went on), or "ended" if the kernel, without BTF, does not report
	// how. It is "" for a call that has an end. A call that failed without
	// passing a probe of its Latency counts as going on until then.
	//
	// Time and Duration are those of the thread's end, Probe and Site those of
	// Start, and there are no Args.
	Ended string

	call *defs.Pair // for Pair; nil for a pair of probes

	// Stack is the user stack, the innermost address first, with
	// EventOptions.StackDepth. It is empty if the kernel could not walk it.
	Stack []uint64

	// Registers and StackCopy are set with EventOptions.StackCopy, for
	// stack.Symbolizer.Unwind.
	//
	// Registers are the general registers of the thread, by the numbers that
	// DWARF gives them, and then the program counter. x86-64: rax, rdx, rcx,
	// rbx, rsi, rdi, rbp, rsp, r8 to r15; arm64: x0 to x30, sp; riscv64: x0 to
	// x31; s390x: r0 to r15. A 32-bit program has those of the 64-bit machine,
	// too.
	//
	// StackCopy is the memory of the user stack from the stack pointer up. It
	// ends early, and may be empty, where the stack ends or memory is paged
	// out.
	Registers []uint64
	StackCopy []byte
}

// Pair returns the name of a call's pair of probes in the form of
// [Latency].Pair, as in postgresql:query, or START..DONE where the names of the
// two have no usual ending. A call that has failed has that of the usual end.
// It is "" for an event without a Start.
func (e *Event) Pair() string {
	var pair defs.Pair
	switch {
	case e.Start == nil:
		return ""
	case e.call != nil:
		return e.call.String()
	}
	start, done := e.Start.Site, e.Site
	pair.Start = defs.FileProbe{Provider: start.Provider, Name: start.Name}
	pair.Done = defs.FileProbe{Provider: done.Provider, Name: done.Name}
	if e.Failed && start.done != nil {
		pair.Done = *start.done
	}
	return pair.String()
}

// String returns the probe, the process and the arguments in one line, as in
//
//	postgresql:query__start in process 7 (postgres): "SELECT 1"
//
// with the names of the arguments that SessionOptions.Definitions have. The
// form may change. Bytes that would affect a terminal are escaped.
func (e *Event) String() string {
	b := fmt.Appendf(nil, "%s in process %d", terminal.Escape(e.Probe), e.PID)
	if e.Command != "" {
		b = fmt.Appendf(b, " (%s)", terminal.Escape(e.Command))
	}
	separator := ": "
	for i, arg := range e.Args {
		b = append(b, separator...)
		separator = ", "
		if e.Site != nil && e.Site.arguments != nil {
			b = append(append(b, e.Site.Argument(i).Name...), '=')
		}
		b = arg.AppendTo(b)
	}
	return string(b)
}

const (
	// lossInterval is the time between two readings of the losses while events
	// come. One costs a few microseconds.
	lossInterval = 50 * time.Millisecond

	// clockInterval is the time between two comparisons of the clocks.
	clockInterval = time.Second

	// clockPrecision is the time that reading the clocks may take: else it is
	// tried again, clockTries times in all.
	clockPrecision = 10 * time.Microsecond
	clockTries     = 5
)

// Events iterates over the events, in the order in which they were recorded.
// There can be one iteration at a time. Breaking out of the loop loses nothing:
// a later iteration goes on there. Each event is the caller's own, unless
// [EventOptions.ReuseEvents] is set.
//
// The iteration ends without an error when the context is done, after
// [Session.Detach] when all events have come, and after [Session.Close]. When
// the context is done, some more events may come; the others wait for the next
// iteration.
//
// An error comes without an event. A [LostError] says that events were lost;
// the iteration goes on. Other errors end it: the session sends no events,
// another iteration is going on, or the ring buffer cannot be read.
//
// The sites of a closed [Attachment] are kept until its last events have been
// read. So where attachments come and go, read the events, or have none sent.
func (s *Session) Events(ctx context.Context) iter.Seq2[*Event, error] {
	return func(yield func(*Event, error) bool) {
		if s.ring == nil {
			yield(nil, errNoEvents)
			return
		}
		if !s.reading.TryLock() {
			yield(nil, errors.New("another iteration over the session's events is going on"))
			return
		}
		defer s.reading.Unlock()
		if ctx.Err() != nil || !s.ring.use() {
			return
		}
		defer context.AfterFunc(ctx, s.ring.interrupt)()
		r := &reading{Session: s, yield: yield, ctx: ctx, ring: s.ring, rest: tracing.Rest(ctx)}
		if s.events.Delay == 0 { // else records do not wake the reader
			r.pace = newPace(len(s.ring.data)/2, runtime.NumCPU())
		}
		defer func() {
			r.decoder.settle()
			r.ring.done()
		}()
		r.setClock()
		r.loop()
	}
}

// A LostError is the number of events that were lost since the last LostError
// because the ring buffer was full.
type LostError uint64

func (e LostError) Error() string {
	return fmt.Sprintf("%d events lost: the ring buffer was full (use a larger one, a filter or aggregations)", uint64(e))
}

// Drain waits until an iteration over [Session.Events] has delivered all events
// that were sent before Drain was called, or until the context is done. It is
// for a caller that joins events with data that another BPF program has sent.
func (s *Session) Drain(ctx context.Context) error {
	if s.ring == nil {
		return errNoEvents
	}
	written, ok := s.ring.written()
	if !ok {
		return sys.ClosedError("session")
	}
	done := make(chan struct{})
	s.drain(written, func() { close(done) })
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// A drain is over when the ring buffer has been read up to a position. The
// reader calls the function then, with stream.draining held.
type drain struct {
	position uint64
	over     func()
}

type stream struct {
	ring     *ringReader // nil if no events are sent
	reading  sync.Mutex  // held by the iteration over events, which the next two belong to
	decoder  *decoder
	reported uint64 // losses that iterations have reported

	draining sync.Mutex
	drains   []drain
}

func (s *stream) drain(position uint64, over func()) {
	s.draining.Lock()
	s.drains = append(s.drains, drain{position, over})
	s.draining.Unlock()
	s.ring.interrupt() // perhaps no event comes
}

// freeSites frees the numbers of detached sites, if there are events when the
// last of them have been read.
func (s *Session) freeSites(sites []*Site) {
	if s.ring == nil {
		s.sites.remove(sites)
		return
	}
	written, _ := s.ring.written()
	s.drain(written, func() {
		s.sites.remove(sites)
		s.decoder.forget() // other sites can get their numbers
	})
}

var errNoEvents = errors.New("the session sends no events: it has Aggregations and no SessionOptions.Events")

type reading struct {
	*Session
	yield   func(*Event, error) bool
	ctx     context.Context
	ring    *ringReader
	checked time.Time // when losses were last read
	unasked bool      // events have come since
	clocks  time.Time // when the clocks were compared
	count   uint      // of events that have followed each other
	lookAt  uint64    // position in the ring buffer at which to call look
	pace    pace
	rest    func() // may be nil
}

// pace says whether a reader that has read everything waits for the next record
// or takes a nap first. A record that ends a wait costs the traced program more
// than two hits: it wakes the reader. One that comes during a nap does not,
// because the kernel has not been told how far was read. So a reader naps while
// records follow each other closely. One sender's events may then be 0.5 µs
// apart before one is lost, and 1.2 µs without naps. Events that do not follow
// others closely are delivered at once.
type pace struct {
	nap   time.Duration // 0: never
	began time.Time     // when the last wait or nap began
	read  uint64        // position in the ring buffer at that time
	short int           // waits in a row that a record ended within a nap's time
}

const (
	// longestNap is how late naps may make an event.
	longestNap = 200 * time.Microsecond
	// shortestNap is several times what it takes to fall asleep and to wake.
	shortestNap = 50 * time.Microsecond
	// shortWaits is the number of short waits before the first nap.
	shortWaits = 16
)

// newPace returns the pace for a ring buffer, which has room for what comes
// during a nap: from each processor a byte in a nanosecond at most.
func newPace(size, processors int) pace {
	nap := min(longestNap, time.Duration(size/(2*processors)))
	if nap < shortestNap {
		nap = 0
	}
	return pace{nap: nap}
}

// naps reports whether the reader naps now, having read up to a position.
func (p *pace) naps(now time.Time, read uint64) bool {
	switch {
	case read == p.read || p.nap == 0:
		p.short = 0
	case p.short < shortWaits && now.Sub(p.began) >= p.nap:
		p.short = 0
	case p.short < shortWaits:
		p.short++
	}
	p.began, p.read = now, read
	return p.short == shortWaits
}

func (r *reading) loop() {
	for {
		r.ring.interrupted.Store(false) // first: a later interruption must not be missed
		// Events that were sent before the session became silent are there now.
		silent := r.life.has(detached)
		if !r.readAll() || !r.deliverOver() || r.isOver() {
			return
		}
		r.pass()
		if silent {
			r.reportLosses()
		}
		if silent || !r.wait() {
			return
		}
	}
}

// wait waits for an event, and reads the losses if they are due. It reports
// whether to go on.
func (r *reading) wait() bool {
	if r.rest != nil {
		r.rest()
	}
	now := time.Now()
	if !r.tick(now) {
		return false
	}
	if r.pace.naps(now, r.ring.read) {
		// Not time.Sleep, which takes a millisecond at least if Go has nothing
		// else to do.
		nap := unix.NsecToTimeval(r.pace.nap.Nanoseconds())
		_, _ = unix.Select(0, nil, nil, nil, &nap) // a signal may end it
		return true
	}
	var deadline time.Time
	if r.unasked {
		deadline = r.checked.Add(lossInterval)
	}
	err := r.ring.wait(deadline, false)
	if delay := r.events.Delay; delay > 0 && err == nil && r.ring.hasMore() {
		// The kernel does not know that a record was seen, so no other wakes
		// this reader until much has come. While nothing comes it sleeps.
		err = r.ring.wait(time.Now().Add(delay), true)
	}
	if err != nil {
		return !errors.Is(err, os.ErrClosed) && r.yield(nil, err)
	}
	return true
}

// tick compares the clocks, and reads the losses if they are due. There are
// losses only if events have come. It reports whether to go on.
func (r *reading) tick(now time.Time) bool {
	if now.Sub(r.clocks) >= clockInterval {
		r.setClock()
	}
	if !r.unasked || now.Sub(r.checked) < lossInterval {
		return true
	}
	r.unasked, r.checked = false, now
	return r.reportLosses()
}

func (r *reading) reportLosses() bool {
	var lost uint64
	err := r.use(func() (err error) {
		lost, err = r.counter(bpfgen.CounterEvents)
		return err
	})
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
	return r.yield(nil, LostError(more))
}

// pass is called between two events. It ends the drains whose events have been
// delivered.
func (r *reading) pass() {
	r.draining.Lock()
	defer r.draining.Unlock()
	r.drains = slices.DeleteFunc(r.drains, func(d drain) bool {
		isOver := d.position <= r.ring.read
		if isOver {
			d.over()
		}
		return isOver
	})
}

func (r *reading) setClock() {
	r.clocks = time.Now()
	if now, ok := readClocks(); ok {
		r.decoder.wall = now.wall
	}
}

// clocks are a moment by the monotonic clock of the initial time namespace,
// which BPF programs read, and the nanoseconds that the wall clock is ahead of
// it.
type clocks struct {
	monotonic time.Duration
	wall      int64
}

// readClocks reads the clocks one after the other. The thread may be
// interrupted meanwhile: the shortest of a few tries counts.
func readClocks() (now clocks, ok bool) {
	ahead := tracing.OwnClockOffsets().Monotonic.Nanoseconds()
	shortest := int64(math.MaxInt64)
	for range clockTries {
		var before, after, wall unix.Timespec
		if unix.ClockGettime(unix.CLOCK_MONOTONIC, &before) != nil ||
			unix.ClockGettime(unix.CLOCK_REALTIME, &wall) != nil ||
			unix.ClockGettime(unix.CLOCK_MONOTONIC, &after) != nil {
			break
		}
		took := after.Nano() - before.Nano()
		if took < shortest {
			shortest = took
			now.monotonic = time.Duration(before.Nano() - ahead)
			now.wall, ok = wall.Nano()-int64(now.monotonic)-took/2, true
		}
		if took < int64(clockPrecision) {
			break
		}
	}
	return now, ok
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

const (
	// bytesPerCheck is the number of bytes that are read between two looks at
	// the clock: a thousand small events.
	bytesPerCheck = 16 << 10

	// eventsOneByOne is the number of events after a pause that are read with a
	// look at the context before each, and not once in bytesPerCheck.
	eventsOneByOne = 64
)

// readAll hands on the events that are in the ring buffer. It reports whether
// to go on.
func (r *reading) readAll() bool {
	m := r.ring
	r.count, r.lookAt = 0, 0
	for m.refill() {
		r.unasked = true
		for m.read < m.limit {
			if m.read >= r.lookAt && !r.look() {
				return false
			}
			raw, ok := m.next()
			if !ok {
				break
			}
			if bpfgen.IsMarkOfExit(raw) {
				if !r.takeExits() {
					return false
				}
				continue
			}
			event, err := r.decoder.decode(raw)
			if !r.yield(event, err) || m.interrupted.Load() && r.isOver() {
				return false
			}
		}
		// The last event is valid until the next one comes, but the kernel may
		// overwrite its bytes as soon as it knows that they were read.
		r.decoder.settle()
	}
	return true
}

// takeExits delivers the calls inside which threads have ended. It reports
// whether to go on.
func (r *reading) takeExits() bool {
	_ = r.use(func() error {
		r.openCalls.takeExits(r.Session)
		return nil
	})
	return r.deliverOver()
}

func (r *reading) deliverOver() bool {
	for e := r.openCalls.nextOver(); e != nil; e = r.openCalls.nextOver() {
		if !r.yield(e, nil) {
			return false
		}
	}
	return true
}

func (r *reading) isOver() bool { return r.ctx.Err() != nil || r.ring.ended.Load() }

// look checks the context, the clock and the losses from time to time. It
// reports whether to go on.
func (r *reading) look() bool {
	if r.ctx.Err() != nil {
		return false
	}
	if r.count++; r.count <= eventsOneByOne {
		r.lookAt = r.ring.read + 1
		return true
	}
	r.lookAt = r.ring.read + bytesPerCheck
	r.pass()
	return r.tick(time.Now())
}
