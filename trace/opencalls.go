// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"cmp"
	"encoding/binary"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// OpenCalls returns the calls that have been going on for longer than the given
// time, the longest first: those that hang right now. They are calls of every
// [Latency] of the session for which Filter and Aggregation.Where may hold at
// their end. Values that only the end has, such as its arguments, its probe and
// cpu, are not known: comparisons with these count as true. Of process and
// thread, user, group, control group and variables of the program, the values
// at the start are compared; but with [Latency].By, another thread may end the
// call, and comparisons with tid and comm count as true. Calls are left out if
// their thread or process has ended, if they have failed (see [Event.Failed]),
// or if their probes are not attached any more.
//
// The events have a Start, an [Event.Pair], and as Duration the time since the
// start. Start has the same fields as for a call that has ended. If only an
// aggregation measures the call, and Spans do not, Start has no Site and no
// arguments. Its Command is the present one if the kernel has kept no other.
// PID and TID are 0 where those of events are. TID is also 0 if the call does
// not belong to a thread.
//
// It works until [Session.Detach], and takes some 10 ms for each 10,000 threads
// that have passed the probes.
func (s *Session) OpenCalls(longer time.Duration) ([]*Event, error) {
	pairs := make(map[uint32]providers.Pair)
	for _, a := range s.Attachments() {
		maps.Copy(pairs, a.names)
	}
	var open []*Event
	err := s.use(func() (err error) {
		decoder := newDecoder(&s.sites, false)
		now, ok := readClocks()
		if !ok {
			return errors.New("the clocks cannot be read")
		}
		decoder.wall = now.wall
		for _, l := range s.latencies {
			var again [bpfgen.CallsSize]byte
			if err := l.each(func(key [2]uint64, calls []bpfgen.OpenCall, _ []byte) error {
				pid, _, pair := bpfgen.Caller(key)
				for _, call := range calls {
					of, known := pairs[pair]
					c := &Event{call: &of, Duration: now.monotonic - call.Began}
					if !known || c.Duration <= longer || s.execAfter(pid, call.Began) ||
						!s.mayCount(l, &call, c.Duration) {
						continue
					}
					if c.Start, err = s.openStart(decoder, l, key, &of, &call); err != nil {
						return err
					}
					// Threads go on while their calls are read: a call that has
					// changed meanwhile may have been read as a mixture.
					if c.Start != nil && l.calls.Lookup(&key, &again) == nil &&
						slices.Contains(l.Calls(again[:]), call) {
						open = append(open, c)
					}
				}
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	open = append(open, s.before.open(s, longer)...)
	slices.SortFunc(open, func(a, b *Event) int { return cmp.Compare(b.Duration, a.Duration) })
	return open, err
}

// each calls a function for the calls on each stack that the kernel has.
func (l *latency) each(do func(key [2]uint64, calls []bpfgen.OpenCall, stack []byte) error) error {
	return eachOnce(l.calls, "reading the calls that go on",
		func(key [2]uint64, stack *[bpfgen.CallsSize]byte) error {
			return do(key, l.Calls(stack[:]), stack[:])
		})
}

// openStart returns the start of a call that goes on, or nil if its thread or
// process has ended.
func (s *Session) openStart(
	d *decoder, l *latency, key [2]uint64, pair *providers.Pair, call *bpfgen.OpenCall,
) (*Event, error) {
	start := &Event{Monotonic: call.Began, Time: time.Unix(0, int64(call.Began)+d.wall), CPU: -1,
		Weight: 1, Probe: pair.Start.Provider + ":" + pair.Start.Name}
	if s.plan.Kernel.PIDs == nil {
		start.PID, start.TID, _ = bpfgen.Caller(key)
		var there bool
		if start.Command, there = commandSince(start.PID, start.TID, call.Began); !there {
			return nil, nil
		}
	}
	if !l.Spans {
		return start, nil
	}
	site := s.sites.get(call.Site)
	if site == nil || site.starts == nil {
		return nil, nil // detached meanwhile
	}
	saved := make([]byte, l.SavedSize)
	err := l.saved.Lookup([3]uint64{key[0], key[1], call.Slot}, &saved)
	if err := ignoreMissing(err); err != nil {
		return nil, err
	}
	if err != nil || !call.Saved ||
		binary.NativeEndian.Uint64(saved[l.SavedSize-8:]) != uint64(call.Began) { // of another call
		saved = nil
	}
	d.decodeStart(start, site, saved)
	return start, nil
}

// mayCount reports whether an open call may become an event, or part of an
// aggregation, when it ends.
func (s *Session) mayCount(l *latency, call *bpfgen.OpenCall, d time.Duration) bool {
	may := func(n *expr.Node) bool {
		if n == nil {
			return true
		}
		yes, _ := outcomes(n, call, d, false)
		return yes
	}
	counts := l.Spans
	for _, a := range s.aggregations {
		counts = counts || a.Latency == &l.Latency && may(a.Where)
	}
	return counts && may(s.plan.Filter)
}

// outcomes reports whether a condition on an open call can be true, and whether
// it can be false. Of a comparison that is negated the kernel has kept whether
// the opposite holds.
func outcomes(
	n *expr.Node, call *bpfgen.OpenCall, d time.Duration, negated bool,
) (yes, no bool) {
	if n.OfStart() || n.Held {
		holds := call.Conditions&(1<<n.AtStart) != 0
		return holds != negated, holds == negated
	}
	switch n.Op {
	case expr.Not:
		no, yes = outcomes(n.Nodes[0], call, d, !negated)
		return yes, no
	case expr.And, expr.Or:
		yes, no = n.Op == expr.And, n.Op == expr.Or
		for _, part := range n.Nodes {
			y, f := outcomes(part, call, d, negated)
			if n.Op == expr.And {
				yes, no = yes && y, no || f
			} else {
				yes, no = yes || y, no && f
			}
		}
		return yes, no
	}
	left, right, op := n.Left, n.Right, n.Op
	if left.Source == expr.Number {
		left, right, op = right, left, op.Mirrored()
	}
	var value uint64
	switch {
	case left.Source == expr.Duration:
		value = uint64(d)
	case left.Source == expr.Failed:
		value = 0 // so far
	default:
		return true, true
	}
	if right.Source != expr.Number {
		return true, true
	}
	if left.HasMask {
		value &= left.Mask
	}
	yes = op.Holds(expr.Uint(value).Compare(right.Number))
	return yes, !yes
}

// openCalls counts the calls that have started and not ended.
type openCalls struct {
	mu     sync.Mutex
	ended  uint64 // calls that had no end when their thread or process ended
	execed uint64 // calls of programs in whose place others run
	frozen bool   // nothing is attached any more
	going  uint64

	compared map[uint32]*comparison // by the number of the pair
}

// look counts the calls that go on, and those whose thread or process has
// ended. It forgets those for which forget, if not nil, returns true. It must
// be called within [Session.use].
func (o *openCalls) look(
	s *Session, forget func(l *latency, key [2]uint64, calls []bpfgen.OpenCall) bool,
) (going, ended uint64, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.count(s, forget)
}

func (o *openCalls) count(
	s *Session, forget func(l *latency, key [2]uint64, calls []bpfgen.OpenCall) bool,
) (going, ended uint64, err error) {
	if o.frozen {
		return o.going, o.ended + o.execed, nil
	}
	o.going = 0
	for _, c := range o.compared {
		c.now = seen{}
	}
	execed := uint64(0)
	for _, l := range s.latencies {
		if l.calls == nil {
			break // New has failed
		}
		var over [][2]uint64
		if err := l.each(func(key [2]uint64, calls []bpfgen.OpenCall, stack []byte) error {
			pid, tid, pair := bpfgen.Caller(key)
			hasEnded := s.plan.Kernel.PIDs == nil && hasEnded(pid, tid)
			isOver := hasEnded || forget != nil && forget(l, key, calls)
			if isOver {
				over = append(over, key)
			}
			if c := o.compared[pair]; c != nil {
				seen := &c.now
				if isOver {
					seen = &c.past
				}
				seen.add(l.Compared(stack))
			}
			for i := range calls {
				switch isExeced := s.execAfter(pid, calls[i].Began); {
				case hasEnded || isExeced && isOver:
					o.ended++
				case isExeced:
					execed++ // the kernel removes them at the next end
				case !isOver:
					o.going++
				}
			}
			return nil
		}); err != nil {
			return 0, 0, err
		}
		for _, key := range over {
			if err := ignoreMissing(l.calls.Delete(key)); err != nil {
				return 0, 0, explain("removing calls without an end", err)
			}
		}
	}
	o.execed = execed
	return o.going, o.ended + o.execed, nil
}

// freeze counts the open calls for the last time.
func (o *openCalls) freeze(s *Session) {
	if len(s.latencies) == 0 {
		return
	}
	_ = s.use(func() error {
		o.mu.Lock()
		defer o.mu.Unlock()
		_, _, err := o.count(s, nil)
		o.frozen = true
		return err // then fewer are known
	})
}
