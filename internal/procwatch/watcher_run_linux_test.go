// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// running is a watcher of the real /proc that runs, and what it has reported so
// far.
type running struct {
	events bool // of the kernel
	*Watcher
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error

	mu    sync.Mutex
	pairs map[int]*ProcessFile // by PID
	news  chan struct{}        // gets a value when pairs has changed
}

func startRunning(t *testing.T, mode runMode, options WatcherOptions) *running {
	r := &running{t: t, pairs: map[int]*ProcessFile{}, news: make(chan struct{}, 1),
		ended: make(chan error, 1)}
	options.Handler = func(c *Changes) {
		r.mu.Lock()
		defer r.mu.Unlock()
		for _, p := range c.Appeared {
			r.pairs[p.Process.PID] = p
		}
		for _, p := range c.Disappeared {
			if known := r.pairs[p.Process.PID]; known != nil && known.File == p.File &&
				known.Process.StartTime == p.Process.StartTime && known.Process.PID == p.Process.PID {
				delete(r.pairs, p.Process.PID)
			}
		}
		select {
		case r.news <- struct{}{}:
		default:
		}
	}
	r.Watcher = NewWatcher(&options, patterns(t, tracedProvider()+":*")...)
	r.events, r.patience = mode.events, scansAnswer
	if !mode.events {
		r.Record = func() (Recorder, error) { return nil, errors.New("switched off") }
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() { r.ended <- r.Run(ctx, mode.interval) }()
	for r.Stats().Passes == 0 { // the first pass is not awaitable otherwise
		runtime.Gosched()
	}
	return r
}

func (r *running) stop() {
	r.endRun()
	qt.Check(r.t, qt.IsNil(r.Close()))
}

// endRun ends Run, and so waits for what it does after the handler.
func (r *running) endRun() {
	r.cancel()
	qt.Check(r.t, qt.IsNil(<-r.ended))
	r.awaitReturns(r.t)
}

// await waits until a process has a pair, or has none.
func (r *running) await(pid int, has bool) {
	r.t.Helper()
	timeout := time.NewTimer(testneeds.Patience(30 * time.Second))
	defer timeout.Stop()
	for {
		r.mu.Lock()
		ok := (r.pairs[pid] != nil) == has
		r.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-r.news:
		case <-timeout.C:
			r.t.Fatalf("process %d: pair is %v after 30 seconds; stats %+v", pid, !has, r.Stats())
		}
	}
}

// runMode is a way to notice changes.
type runMode struct {
	name     string
	interval time.Duration
	events   bool // of the kernel
}

var (
	polling      = runMode{"polling", 20 * time.Millisecond, false}
	kernelEvents = runMode{"kernel events", time.Hour, true}
	runModes     = []runMode{polling, kernelEvents}
)

// needEvents fails the test if there are no kernel events although there should
// be.
func needEvents(t *testing.T, r *running) {
	t.Helper()
	if r.Stats().EventsError != nil && r.events {
		t.Fatalf("%v", r.Stats().EventsError)
	}
}

func TestRunFindsWhatIsMappedLaterAndWhatEnds(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	for _, mode := range runModes {
		t.Run(mode.name, func(t *testing.T) {
			old := startHelper(t, 0)
			r := startRunning(t, mode, WatcherOptions{})
			defer r.stop()
			needEvents(t, r)
			young := startHelper(t, 0)
			old.do("map", lib)
			r.await(old.pid, true)
			young.do("map", lib)
			r.await(young.pid, true)
			old.do("exec")
			r.await(old.pid, false)
			qt.Assert(t, qt.IsNil(young.cmd.Process.Kill()))
			r.await(young.pid, false)
			stats := r.Stats()
			if mode.events {
				qt.Check(t, qt.IsNil(stats.EventsError))
			} else {
				qt.Check(t, qt.ErrorMatches(stats.EventsError,
					"no kernel events, polling only: switched off"))
			}
		})
	}
}

func TestRunFindsTheEndOfAProcessWhoseFirstThreadEndedEarlier(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	for _, mode := range runModes {
		t.Run(mode.name, func(t *testing.T) {
			r := startRunning(t, mode, WatcherOptions{})
			defer r.stop()
			needEvents(t, r)
			h := startHelper(t, 0)
			h.do("map", lib)
			r.await(h.pid, true)
			h.do("leaderless")
			// When a later change is found, the earlier reports have been read.
			later := startHelper(t, 0)
			later.do("map", lib)
			r.await(later.pid, true)
			r.await(h.pid, true)
			h.stop()
			r.await(h.pid, false)
		})
	}
}

func TestRunFindsForkedProcesses(t *testing.T) {
	testneeds.Root(t)
	needWaitCode(t)
	path := traced(1).write(t, t.TempDir(), "program")
	for _, mode := range runModes {
		t.Run(mode.name, func(t *testing.T) {
			const processes, together = 500, 20
			goroutines, descriptors := runtime.NumGoroutine(), openDescriptors(t)
			r := startRunning(t, mode, WatcherOptions{})
			needEvents(t, r)
			for range processes / together {
				var group []*program
				for range together {
					p, err := startProgram(path)
					qt.Assert(t, qt.IsNil(err))
					group = append(group, p)
				}
				for _, p := range group {
					r.await(p.Process.Pid, true)
				}
				for _, p := range group {
					qt.Assert(t, qt.IsNil(p.Close()))
				}
				for _, p := range group {
					r.await(p.Process.Pid, false)
				}
			}
			r.endRun()
			qt.Check(t, qt.Equals(r.cache.inUse(), 0))
			qt.Check(t, qt.IsNil(r.Close()))
			checkDescriptors(t, descriptors)
			for runtime.NumGoroutine() > goroutines { // they are ending
				runtime.Gosched()
			}
		})
	}
}

func TestRunMissesNothingAmongProcessesThatVanish(t *testing.T) {
	testneeds.Root(t)
	needWaitCode(t)
	path := traced(1).write(t, t.TempDir(), "program")
	for _, mode := range runModes {
		t.Run(mode.name, func(t *testing.T) {
			descriptors := openDescriptors(t)
			r := startRunning(t, mode, WatcherOptions{})
			needEvents(t, r)
			stay, err := startProgram(path)
			qt.Assert(t, qt.IsNil(err))
			var group sync.WaitGroup
			for range 2 {
				group.Go(func() {
					for range 100 { // their input is at its end: they exit at once
						if err := exec.Command(path).Run(); err != nil {
							t.Error(err)
						}
					}
				})
				group.Go(func() {
					for range 100 {
						if err := r.Sync(t.Context(), stay.Process.Pid); err != nil {
							t.Error(err)
						}
						if err := r.Sync(t.Context(), 0); err != nil {
							t.Error(err)
						}
					}
				})
			}
			group.Wait()
			r.await(stay.Process.Pid, true)
			qt.Check(t, qt.IsNil(r.Sync(t.Context(), 0)))
			qt.Check(t, qt.HasLen(r.Watcher.ProcessFiles(), 1))
			qt.Check(t, qt.IsNil(stay.Close()))
			r.stop()
			checkDescriptors(t, descriptors)
		})
	}
}

func TestRunMakesUpForLostRecords(t *testing.T) {
	testneeds.Root(t)
	lib := traced(1).write(t, t.TempDir(), "libtraced.so")
	w, told := realWatch(t, WatcherOptions{})
	h := startHelper(t, 0)
	h.do("map", lib)
	source := &eventSource{taken: happenings{lost: 1}}
	qt.Assert(t, qt.IsNil(w.syncEvents(t.Context(), source)))
	qt.Check(t, qt.DeepEquals(*told, []string{"+" + tracedProvider(),
		fmt.Sprintf("+%d libtraced.so", h.pid)}))
	qt.Check(t, qt.Equals(w.Stats().Passes, 1))
}

func TestRunEndsWhenTheWatcherIsClosed(t *testing.T) {
	testneeds.Root(t)
	r := startRunning(t, polling, WatcherOptions{})
	qt.Check(t, qt.IsNil(r.Close()))
	r.endRun()
}

func TestRunNeedsAnIntervalAndProcesses(t *testing.T) {
	w := NewWatcher(&WatcherOptions{FS: procfs.FS(t.TempDir())})
	defer w.Close()
	qt.Check(t, qt.ErrorMatches(w.Run(t.Context(), 0), `run watcher: interval 0s is not positive`))
	qt.Check(t, qt.ErrorMatches(w.Run(t.Context(), time.Hour), ".* not a proc file system .*"))
}

func TestRunReportsThatProcessesCannotBeListedAnyMore(t *testing.T) {
	f := newFixture(t)
	f.put(fakeProcess{pid: 1, size: 1})
	reported := make(chan error, 1)
	w := NewWatcher(&WatcherOptions{FS: f.fs(), Handler: func(c *Changes) {
		for _, err := range c.Errors {
			select {
			case reported <- err:
			default:
			}
		}
	}})
	defer w.Close()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- w.Run(ctx, time.Millisecond) }()
	for w.Stats().Passes == 0 {
		runtime.Gosched()
	}
	f.remove(1)
	qt.Check(t, qt.ErrorMatches(<-reported, ".* not a proc file system .*"))
	cancel()
	qt.Check(t, qt.IsNil(<-ended))
}
