// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"context"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procwatch"
)

func TestLingering(t *testing.T) {
	for name, test := range map[string]func(t *testing.T, w *world, f *Watch){
		"ends after its time": func(t *testing.T, w *world, f *Watch) {
			time.Sleep(time.Second - 1)
			synctest.Wait()
			w.tells()
			time.Sleep(time.Nanosecond)
			synctest.Wait()
			w.tells("-0 a")
		},
		"does not end if a process maps the file again": func(t *testing.T, w *world, f *Watch) {
			w.start(2, "a")
			pass(t, f)
			time.Sleep(time.Hour)
			synctest.Wait()
			w.tells()
			w.end(2)
			pass(t, f)
			time.Sleep(time.Second)
			synctest.Wait()
			w.tells("-0 a")
		},
		"ends if a scan lacks descriptors": func(t *testing.T, w *world, f *Watch) {
			f.follow(&procwatch.Changes{Errors: []error{syscall.EMFILE}})
			synctest.Wait()
			w.tells("!too many open files", "-0 a")
		},
		// The timer ends while changes are followed by which a process maps the
		// file.
		"does not end by a timer that comes too late": func(t *testing.T, w *world, f *Watch) {
			w.fail = func(int, string) error {
				time.Sleep(time.Minute)
				return nil
			}
			w.start(2, "a", "b")
			pass(t, f)
			w.end(2)
			f.opts.Linger = time.Hour
			pass(t, f)
			time.Sleep(time.Minute)
			synctest.Wait()
			w.tells("+0 b")
			time.Sleep(time.Hour)
			synctest.Wait()
			w.tells("-0 a", "-0 b")
		},
	} {
		t.Run(name, func(t *testing.T) {
			whileNothingGoesOn(t, func(t *testing.T) {
				w := newWorld(t).everywhere()
				f := w.follower(Options{Linger: time.Second})
				f.patience = time.Hour
				w.start(9)
				w.start(1, "a")
				pass(t, f)
				w.end(1)
				pass(t, f)
				w.tells("+0 a")
				test(t, w, f)
				qt.Check(t, qt.Equals(len(f.files), 0))
			})
		})
	}
}

// The first process that runs a program ends before it is looked at. That is
// said, and the program is attached for the next one.
func TestProcessesThatEndAtOnce(t *testing.T) {
	now := time.Now()
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: time.Second})
		w.start(1, "a", "b")                      // makes the files
		time.Sleep(time.Until(now) + time.Minute) // they tell the time, too
		w.end(1)
		w.start(9)
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { qt.Check(t, qt.ErrorIs(f.Run(ctx, time.Hour), context.Canceled)) })
		defer running.Wait()
		defer stop()
		short := func(pid uint32, files ...string) {
			w.happens(recordFork, pid, 9, pid, 9)
			w.happens(recordExec, pid, pid, 'p')
			for _, file := range files {
				w.happens(recordMapped, w.mapping(pid, file)...)
			}
			w.happens(recordExit, pid, 9, pid, 9)
			time.Sleep(100 * time.Millisecond)
			synctest.Wait()
		}
		short(2, "a")
		w.tells("+0 a", "missed a 2")
		short(3, "a")
		w.tells()
		short(4, "b", "a")
		w.tells("+0 b", "missed b 4")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.tells("-0 a", "-0 b")
		short(5, "a")
		w.tells("+0 a", "missed a 5")
	})
}

// A process that is starting is tried again soon, and keeps no other waiting.
func TestWatchAttachesAProcessThatHasStarted(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		f.running.Add(1) // as Run does
		var tries atomic.Int32
		var isStarted atomic.Bool
		w.fail = func(part int, file string) error {
			if part != 0 || file != "starting" || isStarted.Load() {
				return nil
			}
			tries.Add(1)
			return errStarting
		}
		w.start(1, "starting", "ready")
		w.start(2, "ready")
		pass(t, f)
		w.tells("+0 ready 1", "+0 ready 2")
		time.Sleep(longestStart)
		synctest.Wait()
		w.tells()
		qt.Check(t, qt.IsTrue(tries.Load() > 50 && tries.Load() < 100),
			qt.Commentf("%d", tries.Load()))
		time.Sleep(longestStart)
		synctest.Wait()
		w.tells("!0 starting 1: it has not started")
		isStarted.Store(true)
		time.Sleep(longestStart)
		synctest.Wait()
		w.tells("+0 starting 1")

		isStarted.Store(false)
		w.start(3, "starting")
		pass(t, f)
		time.Sleep(20 * time.Millisecond)
		isStarted.Store(true)
		time.Sleep(5 * time.Millisecond)
		synctest.Wait()
		w.tells("+0 starting 3")

		isStarted.Store(false)
		w.start(4, "starting")
		pass(t, f)
		w.end(4)
		pass(t, f)
		w.tells("missed starting 4")
	})
}

func TestWatchAttachesAfterATime(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		const after = 2 * time.Second
		w := newWorld(t)
		f := w.follower(Options{After: after})
		wait := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		wait(after - 1)
		pass(t, f) // nor does a scan attach earlier
		w.tells()
		w.start(3, "a", "b")
		w.end(2)
		pass(t, f)
		w.tells("missed a 2")
		wait(1)
		w.tells("+0 a 1")
		wait(after)
		w.tells("+0 a 3", "+0 b 3")

		// It executes the program again.
		w.write("3/stat", "3 (program) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 3 3 1 0 2 0 2 0 0\n")
		pass(t, f)
		w.tells("-0 a 3", "-0 b 3")
		wait(after)
		w.tells("+0 a 3", "+0 b 3")
	})
}
