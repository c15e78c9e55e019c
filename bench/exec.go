// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"os/exec"
	"runtime"
	"time"

	"github.com/gousdt/gousdt/bench/internal/compare"
	"github.com/gousdt/gousdt/bench/internal/peer"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
)

const (
	byNewFile   = "Session.Watch, a file that nobody has run"
	byKnownFile = "Session.Watch, a file that another process runs"
	byNobody    = "the process alone, until it has passed a probe"

	// execPatience is how long a watch may take to see a process.
	execPatience = 10 * time.Second
)

func execRows() []row {
	return []row{{
		name:    "watch/exec",
		title:   "from starting a process that passes a probe again and again to the first hit that is seen",
		rounds:  20,
		prepare: func(e *env) ([]compare.Contestant, error) { return e.execWatchers() },
	}}
}

func (e *env) execWatchers() ([]compare.Contestant, error) {
	if runtime.GOARCH != "amd64" {
		return nil, &unableError{"the sites in peers/target.c are written for x86-64"}
	}
	built, err := peer.Build("target")
	if err != nil {
		return nil, &notHereError{reason: err.Error()}
	}
	session, err := trace.New(nil)
	if err != nil {
		return nil, err
	}
	e.cleanup(func() { session.Close() })
	const probe = "registers3_0"
	watch, err := session.Watch(nil, elfnote.Exact("bench", probe))
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	e.cleanup(cancel)
	go watch.Run(ctx, watchInterval)
	hits := make(chan *trace.Event, 1)
	go func() {
		for event, err := range session.Events(ctx) {
			if err == nil {
				select {
				case hits <- event:
				default: // a later one of a process that has been seen
				}
			}
		}
	}()
	// begin starts a process and returns when it was seen.
	begin := func(path string, isWatched bool) (float64, error) {
		start := time.Now()
		target, err := peer.StartCommand(exec.Command(path))
		if err != nil {
			return 0, err
		}
		defer target.Close()
		for {
			if _, err := target.Ask("run", probe, 1); err != nil {
				return 0, err
			}
			if !isWatched {
				return since(start), nil
			}
			select {
			case hit := <-hits:
				if hit.PID == target.PID() {
					return float64(hit.Time.Sub(start).Nanoseconds()), nil
				}
			default:
			}
			if time.Since(start) > execPatience {
				return 0, errors.New("no hit was seen")
			}
		}
	}
	known, err := e.copyOf(built)
	if err != nil {
		return nil, err
	}
	other, err := e.untilClosed(peer.StartCommand(exec.Command(known)))
	if err != nil {
		return nil, err
	}
	for first := time.Now(); len(hits) == 0; time.Sleep(time.Millisecond) {
		if _, err := other.Ask("run", probe, 1); err != nil {
			return nil, err
		}
		if time.Since(first) > execPatience {
			return nil, errors.New("the watch sees no process")
		}
	}
	return []compare.Contestant{
		{Name: byNewFile, Once: true, Measure: func(int) (float64, error) {
			path, err := e.copyOf(built)
			if err != nil {
				return 0, err
			}
			return begin(path, true)
		}},
		{Name: byKnownFile, Once: true, Measure: func(int) (float64, error) { return begin(known, true) }},
		{Name: byNobody, Once: true, Measure: func(int) (float64, error) { return begin(built, false) }},
	}, nil
}
