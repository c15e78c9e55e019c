// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/trace"
)

const (
	oneRing   = "all send into one ring buffer"
	eachARing = "each sends into one of its own"
	aloneRing = "one sends, the others rest"

	// mostSenders bounds the processors that send, and their ring buffers of
	// ringSize.
	mostSenders = 8
)

// ringRows ask whether a ring buffer for each processor would be worth while.
func ringRows() []row {
	return []row{{
		name:    "hit/rings",
		title:   fmt.Sprintf("one hit, where %d processors pass probes at once and each hit is sent", senders()),
		rounds:  20,
		prepare: func(e *env) ([]compare.Contestant, error) { return e.rings() },
	}}
}

func senders() int { return min(runtime.NumCPU(), mostSenders) }

// sender is a process that passes a probe of which one session has a ring
// buffer for itself, and another one of which it does not.
type sender struct {
	target      *peer.Process
	own, shared *delivery
}

func (e *env) rings() ([]compare.Contestant, error) {
	if senders() == 1 {
		return nil, &unableError{"there is one processor"}
	}
	var all []*sender
	for i := range senders() {
		path, target, err := e.startTarget()
		if err != nil {
			return nil, err
		}
		s := &sender{target: target}
		if s.own, err = e.deliver(losslessKind, path, target, 0,
			trace.SessionOptions{RingSize: ringSize, ReuseEvents: true}); err != nil {
			return nil, err
		}
		if i == 0 {
			s.shared, err = e.deliver(losslessKind, path, target, 1,
				trace.SessionOptions{RingSize: mostSenders * ringSize, ReuseEvents: true})
		} else {
			s.shared, err = all[0].shared.also(path, target, 1)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	contestant := func(name string, active []*sender, of func(*sender) *delivery) compare.Contestant {
		return compare.Contestant{Name: name, Once: true, Measure: func(int) (float64, error) {
			var wait sync.WaitGroup
			spent, errs := make([]float64, len(active)), make([]error, len(active))
			for i, s := range active {
				wait.Go(func() {
					spent[i], errs[i] = s.target.Number("run", of(s).probe, maxHits)
				})
			}
			wait.Wait()
			sum := 0.0
			for i, s := range active {
				sum += spent[i]
				_, came, err := of(s).take(context.Background(), maxHits)
				if err == nil && came != maxHits {
					err = fmt.Errorf("%d of %d events came", came, maxHits)
				}
				errs[i] = errors.Join(errs[i], err)
			}
			return sum / float64(len(active)*maxHits), errors.Join(errs...)
		}}
	}
	own := func(s *sender) *delivery { return s.own }
	return []compare.Contestant{
		contestant(eachARing, all, own),
		contestant(oneRing, all, func(s *sender) *delivery { return s.shared }),
		contestant(aloneRing, all[:1], own),
	}, nil
}
