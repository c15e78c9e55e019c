// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"encoding/binary"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/cilium/ebpf/ringbuf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// takeKeys takes keys from the kernel whenever programs say that there is
// little room for more, until the session is closed.
func (s *Session) takeKeys() {
	var record ringbuf.Record
	for {
		if err := s.signals.ReadInto(&record); errors.Is(err, os.ErrClosed) {
			return
		} else if err != nil {
			// Keys are then taken by snapshots alone, which say so.
			for _, a := range s.aggregations {
				a.fail(err)
			}
			return
		}
		if len(record.RawSample) < 4 {
			continue
		}
		index := binary.NativeEndian.Uint32(record.RawSample)
		if int(index) >= len(s.aggregations) {
			continue
		}
		a := s.aggregations[index]
		err := s.use(func() error {
			a.mu.Lock()
			defer a.mu.Unlock()
			made, err := a.keysMade()
			if err != nil || made-a.taken < uint64(a.Room.Filled) {
				return err // the signal was sent before keys were taken
			}
			_, err = a.take()
			return err
		})
		if err != nil && !errors.Is(err, os.ErrClosed) {
			a.fail(err)
		}
	}
}

// fail has the next snapshot return an error.
func (a *aggregation) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.failed = err
}

// keysMade returns how many keys programs have made, but those of the reserve.
func (a *aggregation) keysMade() (uint64, error) {
	var state bpfgen.RoomState
	err := a.session.room.Lookup(a.Room.Made(), &state)
	return state.Keys, err
}

// setTaken says that there is room for keys again, but for those that have been
// made since there were so many.
func (a *aggregation) setTaken(keys uint64) error {
	a.taken = keys
	a.round++
	return a.session.room.Put(a.Room.Taken(), bpfgen.RoomState{Keys: keys, Round: a.round})
}

// endAggregations has all that is aggregated end now. The kernel detaches one
// site after the other, by perf events in 0.1 s each: what is counted meanwhile
// would make those look more frequent that are detached last.
func (s *Session) endAggregations() {
	_ = s.use(func() error {
		var wait sync.WaitGroup
		for _, a := range s.aggregations {
			wait.Go(a.end)
		}
		wait.Wait()
		return nil
	})
}

func (a *aggregation) end() {
	a.mu.Lock()
	defer a.mu.Unlock()
	now, err := a.take()
	if err != nil {
		return // the next snapshot says why, unless it can be read then
	}
	a.ended = now
}

// take brings the totals up to a moment, which it returns. a.mu must be held.
func (a *aggregation) take() (time.Time, error) {
	if !a.ended.IsZero() {
		return a.ended, nil
	}
	now := time.Now()
	filled := a.tally
	if a.Exchanged {
		var keys uint64
		if a.Room != nil {
			var err error
			if keys, err = a.keysMade(); err != nil {
				return now, err
			}
		}
		if a.Stacks != nil {
			if err := a.stacks.begin(); err != nil {
				return now, err
			}
		}
		// The kernel returns when no program has the other map in hand any
		// more: it waits for those that run (kernel commit 1ae80cf31938, Linux
		// 5.0), but for those that may sleep.
		if err := a.current.Put(uint32(0), a.spare.Map); err != nil {
			return now, err
		}
		a.tally, a.spare = a.spare, a.tally
		if a.Room != nil {
			if err := a.setTaken(keys); err != nil {
				return now, err
			}
		}
		if a.Stacks != nil {
			if err := a.stacks.end(); err != nil {
				return now, err
			}
		}
	}
	known := make(map[string]*total)
	var failed error
	err := filled.read(a, func(key []byte, added sums) {
		t, err := a.totalOf(key, known)
		if err != nil {
			failed = err
		}
		a.totals.give(t, added.owner)
		a.addTo(t, index(key), added)
	})
	if a.overflow != nil && err == nil {
		err = a.overflow.read(a, func(key []byte, added sums) {
			a.totals.overflow += added.count
			a.addTo(&a.totals.other, index(key), added)
		})
	}
	return now, errors.Join(err, failed)
}
