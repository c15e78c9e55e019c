// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"fmt"
	"runtime"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

const (
	byTrace  = "package trace, events reused"
	byKeeper = "package trace, each event kept"
	byReader = "ringbuf.Reader, undecoded"
)

// deliveredShapes are the probes whose events are delivered: of three arguments
// and of twelve.
var deliveredShapes = []shape{shapes[1], shapes[3]}

func deliverRows() []row {
	readers := map[tracerID]string{
		generatedSends: byTrace, generatedKeeps: byKeeper, headerSends: byReader, libbpfSends: byLibbpf,
	}
	var rows []row
	for _, s := range deliveredShapes {
		rows = append(rows, row{
			name:   fmt.Sprintf("deliver/time%d", s.count),
			title:  fmt.Sprintf("one event of %d arguments, from the ring buffer to the program that adds them up", s.count),
			rounds: 20,
			sample: 4 * time.Millisecond,
			goals:  []compare.Goal{{Of: byTrace, Than: byLibbpf, Times: 1.5}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.deliveries(s, readers, func(sent int, drain func() error) (float64, error) {
					start := time.Now()
					err := drain()
					return since(start) / float64(sent), err
				})
			},
		})
	}
	return append(rows, row{
		name:   "deliver/allocations",
		title:  "allocations for one event of three arguments, once the first ones have been delivered",
		unit:   compare.Count,
		rounds: 5,
		// Something else in the process may allocate a little.
		goals: []compare.Goal{{Of: byTrace, More: 0.01}, {Of: byKeeper, More: 1.01}},
		prepare: func(e *env) ([]compare.Contestant, error) {
			ours := map[tracerID]string{generatedSends: byTrace, generatedKeeps: byKeeper, headerSends: byReader}
			return e.deliveries(deliveredShapes[0], ours, func(sent int, drain func() error) (float64, error) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				err := drain()
				runtime.ReadMemStats(&after)
				return float64(after.Mallocs-before.Mallocs) / float64(sent), err
			})
		},
	})
}

// eventsAtATime are delivered in each round.
const eventsAtATime = 20_000

// deliveries returns readers of the events of some tracers, with what is
// measured of their work.
func (e *env) deliveries(
	s shape, names map[tracerID]string, measure func(sent int, drain func() error) (float64, error),
) ([]compare.Contestant, error) {
	t, err := e.shared.tracers()
	if err != nil {
		return nil, err
	}
	var contestants []compare.Contestant
	for _, id := range []tracerID{generatedSends, generatedKeeps, headerSends, libbpfSends} {
		name, wanted := names[id]
		if !wanted {
			continue
		}
		send := func(sent int) error {
			_, err := t.target.Ask("run", s.probe(id), sent)
			return err
		}
		contestants = append(contestants, compare.Contestant{
			Name: name, Once: true, Missing: t.missing[id],
			Measure: func(int) (float64, error) {
				// The first events find things not yet in place.
				if err := send(1); err != nil {
					return 0, err
				}
				if err := t.drain[id](1); err != nil {
					return 0, err
				}
				if err := send(eventsAtATime); err != nil {
					return 0, err
				}
				return measure(eventsAtATime, func() error { return t.drain[id](eventsAtATime) })
			},
		})
	}
	return contestants, nil
}
