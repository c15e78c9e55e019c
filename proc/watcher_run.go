// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// ErrNoKernelEvents means that the kernel cannot be had to tell what happens,
// so that changes are found by polling alone.
var ErrNoKernelEvents = errors.New("no kernel events, polling only")

// Run looks at all processes, now and at each interval, and if kernel events
// are to be had also at single ones within some 20 ms of their start, exec,
// exit or mapping of a file. It returns nil when the context ends or the
// watcher is closed; an error, if the processes cannot be listed at the first
// time. Later, that is reported to the handler.
//
// An interval must be positive; ten seconds are a good one. With kernel events
// it may be longer: passes then only find what is described in the package
// documentation as not reported by the kernel.
func (w *Watcher) Run(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		return fmt.Errorf("run watcher: interval %v is not positive", interval)
	}
	// Events first: what happens during the first pass is not to be missed.
	var happened <-chan struct{}
	source, err := w.openEvents()
	if source != nil {
		defer source.Close()
		happened = source.happened
	}
	w.setEvents(source != nil, err)
	defer w.setEvents(false, fmt.Errorf("%w: not running", ErrNoKernelEvents))

	if err := w.SyncAll(); err != nil {
		return unlessClosed(err)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-happened:
			err = w.syncEvents(source)
		case <-tick.C:
			err = w.syncAllReporting()
		}
		if errors.Is(err, os.ErrClosed) {
			return nil
		}
	}
}

func unlessClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// openEvents opens the kernel's source of events if that is wanted and it
// speaks of the processes of this proc file system.
func (w *Watcher) openEvents() (*eventSource, error) {
	if !w.events {
		return nil, fmt.Errorf("%w: switched off", ErrNoKernelEvents)
	}
	if !w.fs.OwnPIDs() {
		return nil, fmt.Errorf("%w: %s is not the proc file system of the caller's PID namespace", ErrNoKernelEvents, w.fs.root)
	}
	source, err := openEventSource()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrNoKernelEvents, err)
	}
	return source, nil
}

func (w *Watcher) setEvents(on bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.KernelEvents, w.stats.EventsError = on, err
}

// syncEvents looks at the processes of which the kernel told, or at all if it
// told that it could not tell everything.
func (w *Watcher) syncEvents(source *eventSource) error {
	told := source.take()
	w.mu.Lock()
	w.stats.Records += told.records
	w.stats.Lost += told.lost
	var pids []int
	for pid, always := range told.pids {
		if p := w.processes[pid]; always || (p != nil && p.leaderless) {
			pids = append(pids, pid)
		}
	}
	w.mu.Unlock()
	if told.lost > 0 {
		if err := w.syncAllReporting(); err != nil {
			return err
		}
	}
	if len(pids) == 0 {
		return nil
	}
	if err := w.sync(pids); errors.Is(err, os.ErrClosed) {
		return err
	}
	return nil // what is wrong with single ones has been reported
}

// syncAllReporting is SyncAll with the handler told of an error.
func (w *Watcher) syncAllReporting() error {
	err := w.SyncAll()
	if err == nil || errors.Is(err, os.ErrClosed) {
		return err
	}
	w.looking.Lock()
	defer w.looking.Unlock()
	if !w.closed {
		w.begin()
		w.look.changes.Errors = []error{&Error{Op: "look at all processes", Err: err}}
		w.deliver()
	}
	return nil
}
