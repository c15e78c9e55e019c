// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procwatch"
)

const (
	watchedProcesses = 2000
	watchedMappings  = 200
	watchInterval    = 10 * time.Second

	byPasses = "gousdt, passes"
	byEvents = "gousdt, running with kernel events"
	byStats  = "reading each /proc/PID/stat"

	// passesForAll are as many as it takes until every kind of pass has come:
	// each thousandth is thorough.
	passesForAll = 1000
)

func watchRows() []row {
	return []row{{
		name: "watch/2000",
		title: fmt.Sprintf("a watcher over %d processes with %d mappings each, nothing changing: processor time in %v",
			watchedProcesses, watchedMappings, watchInterval),
		rounds:  3,
		goals:   []goal{{Of: byPasses, Than: byHand, Times: 1.2}, {Of: byEvents, Than: byHand, Times: 1.2}},
		prepare: (*env).watchers,
	}}
}

func (e *env) watchers() ([]contestant, error) {
	path, err := e.synthetic(syntheticFile{Sites: 100, Probes: 10})
	if err != nil {
		return nil, err
	}
	// A file that was written to just now is looked at again.
	if err := os.Chtimes(path, time.Time{}, time.Unix(1, 0)); err != nil {
		return nil, err
	}
	p, err := e.start("crowd")
	if err != nil {
		return nil, err
	}
	processes := e.pick(watchedProcesses, watchedProcesses, 20)
	if _, err := p.Ask("start", processes, watchedMappings, path); err != nil {
		return nil, err
	}
	// watching measures a watcher that knows all processes already.
	watching := func(work func(*procwatch.Watcher) error) (float64, error) {
		w := procwatch.NewWatcher(nil)
		defer w.Close()
		if err := w.Sync(context.Background(), 0); err != nil {
			return 0, err
		}
		return processorTime(func() error { return work(w) })
	}
	// A thousand passes of 10 ms, say, stand for 10,000 seconds.
	passes := e.pick(passesForAll, passesForAll, 2)
	hand, err := e.start("byhand")
	if err != nil {
		return nil, err
	}
	interval := watchInterval / time.Duration(e.pick(1, 1, 100))
	return []contestant{
		once(byPasses, func() (float64, error) {
			spent, err := watching(func(w *procwatch.Watcher) (err error) {
				for range passes {
					err = errors.Join(err, w.Sync(context.Background(), 0))
				}
				return err
			})
			return spent / float64(passes), err
		}),
		once(byEvents, func() (float64, error) {
			return watching(func(w *procwatch.Watcher) error {
				// It begins with a pass of its own, and ends before the next.
				ctx, cancel := context.WithTimeout(context.Background(), interval*9/10)
				defer cancel()
				return w.Run(ctx, interval)
			})
		}),
		once(byHand, func() (float64, error) {
			spent, err := hand.Number("pass", passes/10+1)
			return spent / float64(passes/10+1), err
		}),
		once(byStats, func() (float64, error) {
			all, err := filepath.Glob("/proc/[0-9]*/stat")
			if err != nil {
				return 0, err
			}
			buffer := make([]byte, 1024)
			return processorTime(func() error {
				for _, name := range all {
					if fd, err := unix.Open(name, unix.O_RDONLY, 0); err == nil { // it has not ended
						unix.Read(fd, buffer)
						unix.Close(fd)
					}
				}
				return nil
			})
		}),
	}, nil
}

// processorTime returns the nanoseconds of processor time that all threads of
// this process took for some work.
func processorTime(work func() error) (float64, error) {
	return clocked(unix.CLOCK_PROCESS_CPUTIME_ID, work)
}

// threadTime returns the nanoseconds of processor time that this thread took
// for some work. The goroutine must keep to this thread.
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
