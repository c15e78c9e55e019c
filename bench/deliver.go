// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"runtime"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
)

const (
	byTrace  = "package trace"
	byReader = "ringbuf.Reader, undecoded"
)

// deliveredShape is the probe whose events are delivered.
var deliveredShape = shapes[1]

func deliverRows() []row {
	return []row{
		{
			name:   "deliver/time",
			title:  "one event of three arguments, from the ring buffer to the program that reads it",
			rounds: 20,
			sample: 4 * time.Millisecond,
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.deliveries(map[tracerID]string{generatedSends: byTrace, headerSends: byReader, libbpfSends: byLibbpf},
					func(sent int, drain func() error) (float64, error) {
						start := time.Now()
						err := drain()
						return since(start) / float64(sent), err
					})
			},
		},
		{
			name:   "deliver/allocations",
			title:  "allocations for one event, once the first ones have been delivered",
			unit:   compare.Count,
			rounds: 5,
			// Something else in the process may allocate a little.
			goals: []compare.Goal{{Of: byTrace, More: 0.01}},
			prepare: func(e *env) ([]compare.Contestant, error) {
				return e.deliveries(map[tracerID]string{generatedSends: byTrace, headerSends: byReader},
					func(sent int, drain func() error) (float64, error) {
						var before, after runtime.MemStats
						runtime.ReadMemStats(&before)
						err := drain()
						runtime.ReadMemStats(&after)
						return float64(after.Mallocs-before.Mallocs) / float64(sent), err
					})
			},
		},
	}
}

// eventsAtATime are delivered in each round.
const eventsAtATime = 20_000

// deliveries returns readers of the events of some tracers, with what is
// measured of their work.
func (e *env) deliveries(names map[tracerID]string, measure func(sent int, drain func() error) (float64, error)) ([]compare.Contestant, error) {
	t, err := e.shared.tracers()
	if err != nil {
		return nil, err
	}
	var contestants []compare.Contestant
	for _, id := range []tracerID{generatedSends, headerSends, libbpfSends} {
		name, wanted := names[id]
		if !wanted {
			continue
		}
		send := func(sent int) error {
			_, err := t.target.Ask("run", deliveredShape.probe(id), sent)
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
