// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/gousdt/gousdt/trace"
)

// A trial is how long events are sent at a rate. triedRates are the rates that
// are tried after the highest: each halves what is not known, from
// lowestPart of it on.
const (
	trial      = 200 * time.Millisecond
	triedRates = 5
	lowestPart = 1.0 / 64
)

func losslessRows() []row {
	var rows []row
	for _, n := range slices.Compact([]int{1, runtime.NumCPU()}) {
		from := "one processor"
		if n > 1 {
			from = fmt.Sprintf("all processors (%d)", n)
		}
		rows = append(rows, row{
			name: fmt.Sprintf("deliver/lossless%d", n),
			title: "time between two events that come from " + from + " as fast as none is lost: " +
				losslessKind.title,
			rounds: 2,
			goals: []goal{
				{Of: byTrace, Than: byBpftracePrint, Times: 0.6},
				{Of: byUsdttrace, Than: byBpftracePrint, Times: 0.7},
			},
			prepare: func(e *env) ([]contestant, error) { return e.losslessReaders(n) },
		})
	}
	return rows
}

// A trialAt passes a probe for a while at a rate, 0 for as often as it can, and
// returns how often, how many of the events were received, and the rate.
type trialAt func(rate float64) (passed, received int, per float64, err error)

// pace passes a probe of a target on some of the processors.
func pace(
	target *peer, processors int, probe string, rate float64,
) (passed int, per float64, err error) {
	spent := 0.0
	err = target.Scan([]any{"pace", probe, processors, int(rate / float64(processors)),
		trial.Milliseconds()}, &passed, &spent)
	return passed, float64(passed) / spent * 1e9, err
}

// fastest returns the nanoseconds between two events at the highest rate at
// which try receives as many as were passed.
func fastest(try trialAt) (float64, error) {
	passed, received, highest, err := try(0)
	if err != nil || passed == received {
		return 1e9 / highest, err
	}
	best, low, high := 0.0, lowestPart, 1.0
	for range triedRates {
		part := math.Sqrt(low * high)
		passed, received, per, err := try(part * highest)
		if err != nil {
			return 0, err
		}
		if passed == received {
			best, low = max(best, per), part
		} else {
			high = part
		}
	}
	if best == 0 {
		return 0, fmt.Errorf("events are lost at %.0f a second, too", lowestPart*highest)
	}
	return 1e9 / best, nil
}

func (e *env) losslessReaders(processors int) ([]contestant, error) {
	path, target, err := e.startTarget()
	if err != nil {
		return nil, err
	}
	v, err := e.deliver(losslessKind, path, target, 0, trace.EventOptions{ReuseEvents: true})
	if err != nil {
		return nil, err
	}
	usdttrace, err := e.goBuild("usdttrace")
	if err != nil {
		return nil, err
	}
	printed := func(name string, twin int, command string, arguments ...string) contestant {
		p, err := e.startPrinter(target, path, losslessKind.probe, twin, command, arguments...)
		if err != nil {
			return missing(name, err)
		}
		return once(name, func() (float64, error) {
			return fastest(func(rate float64) (passed, received int, per float64, err error) {
				before := p.count.Load()
				passed, per, err = pace(p.target, processors, p.probe, rate)
				return passed, p.settle(before, passed), per, err
			})
		})
	}
	return []contestant{
		once(byTrace, func() (float64, error) {
			return fastest(func(rate float64) (int, int, float64, error) {
				return v.keepUp(processors, rate)
			})
		}),
		printed(byUsdttrace, 1, usdttrace, "PATH", "bench:PROBE"),
		printed(byBpftracePrint, 2, "bpftrace", "-e", bpftracePrints),
	}, nil
}

// keepUp reads events while they are sent.
func (v *delivery) keepUp(
	processors int, rate float64,
) (passed, received int, per float64, err error) {
	before, err := v.session.Losses()
	if err != nil {
		return 0, 0, 0, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var readErr error
	var reading sync.WaitGroup
	reading.Go(func() { _, received, readErr = take(ctx, v.session, math.MaxInt, false) })
	passed, per, err = pace(v.target, processors, v.probe, rate)
	cancel()
	if reading.Wait(); err != nil || readErr != nil {
		return 0, 0, 0, errors.Join(err, readErr)
	}
	after, err := v.session.Losses()
	if err != nil {
		return 0, 0, 0, err
	}
	// Events that are still in the ring buffer were not lost.
	if left := passed - int(after.Events-before.Events) - received; left > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), restPatience)
		defer cancel()
		_, came, err := take(ctx, v.session, left, false)
		return passed, received + came, per, err
	}
	return passed, received, per, nil
}

// restPatience is how long the rest may take to come.
const restPatience = 2 * time.Second
