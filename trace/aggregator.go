// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"sync/atomic"

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

// aggregation is an Aggregation with its expressions parsed, and its maps.
type aggregation struct {
	bpfgen.Aggregation
	session      *Session
	names        []string // of the keys
	maxKeys      int
	accumulators *ebpf.Map
	stacks       *ebpf.Map // nil unless a key is a stack
}

// bindAggregators makes the aggregators those of the session.
func (s *Session) bindAggregators() error {
	for i, a := range s.opts.Aggregators {
		before := a.bound.Load()
		if before != nil && !before.session.isClosed() || !a.bound.CompareAndSwap(before, s.aggregations[i]) {
			return &OptionError{Field: "Aggregators", Index: i, Err: errors.New("another session has this aggregator")}
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
