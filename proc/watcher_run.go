// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"
)

// Why there are no kernel events, see [WatcherStats].
var (
	errNoKernelEvents = errors.New("no kernel events, polling only")
	errNotRunning     = fmt.Errorf("%w: not running", errNoKernelEvents)
)

// Run scans all processes, now and at each interval. If the kernel reports what
// happens to processes, Run also scans single ones within 1 to 20 ms of their
// start, exec, exit or mapping of a file. It returns nil when the context ends
// or the watcher is closed, and an error if the processes cannot be listed the
// first time. Later, the handler gets it.
//
// An interval must be positive; ten seconds are a good one. With kernel events
// it may be longer: passes then only find what the package documentation
// describes as not reported by the kernel.
func (w *Watcher) Run(ctx context.Context, interval time.Duration) error {
	if interval <= 0 {
		return fmt.Errorf("run watcher: interval %v is not positive", interval)
	}
	w.running.Add(1)
	defer w.running.Add(-1)
	// Events first: what happens during the first pass is not to be missed.
	var happened <-chan struct{}
	source, err := w.openEvents()
	if source != nil {
		defer source.Close()
		happened = source.happened
	}
	w.setEventsError(err)
	defer w.setEventsError(errNotRunning)

	if err := w.syncAll(ctx); err != nil && !isLack(err) { // a lack passes
		return unlessClosed(err)
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-w.open.Done():
			return nil
		case <-happened:
			err = w.syncEvents(ctx, source)
		case <-w.due:
			_, err = w.syncSome(ctx, w.pidsDue())
		case <-tick.C:
			err = w.syncAllReporting(ctx)
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
		return nil, fmt.Errorf("%w: switched off", errNoKernelEvents)
	}
	if !w.fs.OwnPIDs() {
		return nil, fmt.Errorf("%w: %s is not the proc file system of the caller's PID namespace",
			errNoKernelEvents, w.fs.Root())
	}
	source, err := openEventSource()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errNoKernelEvents, err)
	}
	return source, nil
}

func (w *Watcher) setEventsError(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.EventsError = err
}

// syncEvents scans the processes that the kernel reported, or all if the kernel
// could not report everything.
func (w *Watcher) syncEvents(ctx context.Context, source *eventSource) error {
	told := source.take()
	w.mu.Lock()
	w.stats.Lost += told.lost
	var pids []int
	for pid, always := range told.pids {
		if p := w.processes[pid]; always || (p != nil && p.leaderless) {
			pids = append(pids, pid)
		}
	}
	w.mu.Unlock()
	if told.lost > 0 {
		if err := w.syncAllReporting(ctx); err != nil {
			return err
		}
	}
	took, err := w.syncSome(ctx, pids)
	source.spend(took)
	return err
}

// syncSome scans processes of which something is known to have happened, and
// returns how long that took.
func (w *Watcher) syncSome(ctx context.Context, pids []int) (took time.Duration, err error) {
	if len(pids) == 0 {
		return 0, nil
	}
	took, err = w.sync(ctx, pids, happened)
	if !errors.Is(err, os.ErrClosed) {
		err = nil // what is wrong with single ones has been reported
	}
	return took, err
}

// syncAllReporting is SyncAll with the handler told of an error.
func (w *Watcher) syncAllReporting(ctx context.Context) error {
	err := w.syncAll(ctx)
	if err == nil || errors.Is(err, os.ErrClosed) {
		return err
	}
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if !w.closed {
		w.begin()
		w.scan.changes.Errors = []error{&Error{Op: "scan all processes", Err: err}}
		w.deliver()
	}
	return nil
}
