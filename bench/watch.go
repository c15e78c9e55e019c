// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/procwatch"
)

const (
	watchedProcesses = 2000
	watchedMappings  = 200
	watchInterval    = 10 * time.Second

	byPasses = "gousdt, passes"
	byEvents = "gousdt, running with kernel events"

	// passesForAll are as many as it takes until every kind of pass has come:
	// each hundredth is thorough.
	passesForAll = 100

	startsPerSecond = 500
)

func watchRows() []row {
	atMost := func(of string) goal {
		return goal{Of: of, Most: float64(watchInterval) / 100}
	}
	started := goal{Of: byEvents, Most: float64(50 * time.Microsecond)}
	return []row{{
		name: "watch/start",
		title: fmt.Sprintf("a watcher over %d processes, and %d that start in a second and map no file with wanted probes: processor time for each",
			watchedProcesses, startsPerSecond),
		rounds: 3,
		goals:  []goal{started},
		prepare: func(e *env) ([]contestant, error) {
			return e.starters(e.pick(watchedProcesses, watchedProcesses, 20), e.pick(2000, 1000, 20))
		},
	}, {
		name: "watch/2000",
		title: fmt.Sprintf("a watcher over %d processes with %d mappings each, nothing changing: processor time in %v",
			watchedProcesses, watchedMappings, watchInterval),
		rounds: 3,
		goals:  []goal{atMost(byPasses), atMost(byEvents)},
		prepare: func(e *env) ([]contestant, error) {
			return e.watchers(e.pick(watchedProcesses, watchedProcesses, 20))
		},
	}}
}

func (e *env) watchers(processes int) ([]contestant, error) {
	if err := e.crowd(processes); err != nil {
		return nil, err
	}
	// A hundred passes of 100 ms, say, stand for 1,000 seconds.
	passes := e.pick(passesForAll, passesForAll, 2)
	running := time.Duration(e.pick(2, 1, 0)) * watchInterval
	return []contestant{
		once(byPasses, func() (float64, error) { return passTime(passes) }),
		{Name: byEvents, Once: true, MaxRounds: 1,
			Measure: func(int) (float64, error) { return runTime(running) }},
	}, nil
}

// starters returns who watches while processes start.
func (e *env) starters(processes, starts int) ([]contestant, error) {
	if err := e.crowd(processes); err != nil {
		return nil, err
	}
	p, err := e.start("crowd")
	if err != nil {
		return nil, err
	}
	start := func(count int) error {
		_, err := p.Ask("run", count, startsPerSecond)
		return err
	}
	return []contestant{once(byEvents, func() (float64, error) {
		w := procwatch.NewWatcher(nil, elfnote.MustParsePattern(syntheticProvider+":*"))
		defer w.Close()
		if err := w.SyncAll(); err != nil {
			return 0, err
		}
		ctx, stop := context.WithCancel(context.Background())
		ran := make(chan error, 1)
		go func() { ran <- w.Run(ctx, watchInterval) }()
		defer func() { stop(); <-ran }()
		if err := start(startsPerSecond); err != nil { // its pass is over, and it knows the files
			return 0, err
		}
		spent, err := processorTime(func() error { return start(starts) })
		return spent / float64(starts), err
	})}, nil
}

// crowd starts processes that have a file with probes mapped.
func (e *env) crowd(processes int) error {
	path, err := e.synthetic(syntheticFile{Sites: 100, Probes: 10})
	if err != nil {
		return err
	}
	p, err := e.start("crowd")
	if err != nil {
		return err
	}
	_, err = p.Ask("start", processes, watchedMappings, path)
	return err
}

// passTime returns the processor time of one pass of a watcher that knows all
// processes already.
func passTime(passes int) (float64, error) {
	w := procwatch.NewWatcher(nil)
	defer w.Close()
	if err := w.SyncAll(); err != nil {
		return 0, err
	}
	spent, err := processorTime(func() error {
		for range passes {
			if err := w.SyncAll(); err != nil {
				return err
			}
		}
		return nil
	})
	return spent / float64(passes), err
}

// runTime returns the processor time that a watcher takes in an interval,
// averaged over some.
func runTime(while time.Duration) (float64, error) {
	w := procwatch.NewWatcher(nil)
	defer w.Close()
	if err := w.SyncAll(); err != nil {
		return 0, err
	}
	// It begins with a pass of its own, so that there are as many as intervals.
	interval := watchInterval
	if while == 0 {
		while, interval = 200*time.Millisecond, 100*time.Millisecond
	}
	spent, err := processorTime(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), while-interval/2)
		defer cancel()
		return w.Run(ctx, interval)
	})
	return spent * float64(interval) / float64(while), err
}

// processorTime returns the nanoseconds of processor time that all threads of
// this process took for some work.
func processorTime(work func() error) (float64, error) {
	return clocked(unix.CLOCK_PROCESS_CPUTIME_ID, work)
}

// threadTime returns the nanoseconds of processor time that this thread took
// for some work, for which the goroutine must keep to it.
func threadTime(work func() error) (float64, error) {
	return clocked(unix.CLOCK_THREAD_CPUTIME_ID, work)
}

func clocked(clock int32, work func() error) (float64, error) {
	var before, after unix.Timespec
	if err := unix.ClockGettime(clock, &before); err != nil {
		return 0, os.NewSyscallError("clock_gettime", err)
	}
	err := work()
	unix.ClockGettime(clock, &after)
	return float64(after.Nano() - before.Nano()), err
}
