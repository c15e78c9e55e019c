// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// An Aggregator computes an [Aggregation] for the session whose
// [SessionOptions] have it. Its methods are safe for concurrent use.
type Aggregator struct {
	definition Aggregation
	bound      atomic.Pointer[aggregation] // nil before there is a session
}

// NewAggregator returns an Aggregator to be put into
// [SessionOptions.Aggregators]. What is wrong with the definition is an error
// of [New] and [Open].
func NewAggregator(definition Aggregation) *Aggregator {
	return &Aggregator{definition: definition}
}

// aggregation is an Aggregation with its expressions parsed, its maps, and what
// has been taken from these.
type aggregation struct {
	bpfgen.Aggregation
	session   *Session
	names     []string // of the keys
	maxKeys   int
	normalize func(string) string // nil: texts stay as they are

	tally    *tally    // where programs add now
	spare    *tally    // which the next exchange makes the other; nil if there is none
	current  *ebpf.Map // where programs find the tally; nil if it is always the same
	overflow *tally    // what finds no room; nil without keys
	owners   *ebpf.Map // of the reserve; nil without keys
	round    uint32    // of the room for keys, which goes up when they are taken
	taken    uint64    // how many keys had been made then
	stacks   keyStacks // if a key is a stack

	mu      sync.Mutex // held while maps are read
	totals  totals
	failed  error // while nobody waited for it
	started time.Time
	ended   time.Time // zero until the session is detached
}

// bindAggregators makes the aggregators those of the session.
func (s *Session) bindAggregators() error {
	for i, a := range s.opts.Aggregators {
		before := a.bound.Load()
		if before != nil && !before.session.isClosed() ||
			!a.bound.CompareAndSwap(before, s.aggregations[i]) {
			return &OptionError{Field: "Aggregators", Index: i,
				Err: errors.New("another session has this aggregator")}
		}
	}
	return nil
}

// aggregation returns the aggregator's maps and expressions in its session.
func (a *Aggregator) aggregation() (*aggregation, error) {
	if bound := a.bound.Load(); bound != nil {
		return bound, nil
	}
	return nil, errors.New("the aggregator has no session: put it into SessionOptions.Aggregators")
}
