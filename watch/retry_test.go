// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

func TestClassify(t *testing.T) {
	_, missing := os.Open("/nonexistent/file")
	for _, tc := range []struct {
		err  error
		want retryTime
	}{
		{errors.New("no nop there"), never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.EOPNOTSUPP), never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.Errno(524)), never},
		{missing, later},
		{&procfs.Error{Op: "open", Err: procfs.ErrChanged}, later},
		{fmt.Errorf("link: %w", syscall.EPERM), later},
		{fmt.Errorf("link: %w", syscall.ENOMEM), withRoom},
		{&os.PathError{Op: "open", Err: syscall.EMFILE}, withRoom},
	} {
		qt.Check(t, qt.Equals(classify(tc.err), tc.want), qt.Commentf("%v", tc.err))
	}
}

var errTest = errors.New("failure")

func TestWatchReportsAFailureOnce(t *testing.T) {
	w := newWorld(t)
	f := w.followerOf(2, Options{})
	failure := map[int]error{0: syscall.ENOMEM, 1: syscall.ENOMEM}
	w.fail = func(part int, _ string) error { return failure[part] }
	w.start(1, "a")
	pass(t, f)
	w.tells("!0 a 1: cannot allocate memory", "!1 a 1: cannot allocate memory")
	pass(t, f)
	w.tells()
	failure[0] = syscall.EBUSY
	pass(t, f)
	w.tells("!0 a 1: device or resource busy")
	pass(t, f)
	w.tells()
	failure[0] = errTest // this is not tried again
	pass(t, f)
	w.tells("!0 a 1: failure")
	delete(failure, 0)
	pass(t, f)
	w.tells()
}

func TestWatchTriesAgainInTurn(t *testing.T) {
	t.Run("only what may succeed now, by its last failure", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) { // a round has an end in time
			w := newWorld(t).everywhere()
			f := w.follower(Options{Linger: -1})
			var tried []string
			failure := map[string]error{"later": syscall.EBUSY, "room": syscall.ENOMEM,
				"space": syscall.ENOSPC}
			w.fail = func(part int, file string) error {
				if part == 0 {
					tried = append(tried, file)
					return failure[file]
				}
				return nil
			}
			tries := func(want ...string) {
				t.Helper()
				qt.Check(t, qt.DeepEquals(tried, want))
				tried = nil
			}
			for pid, file := range []string{"later", "room", "space"} {
				w.start(1+pid, file)
				qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1+pid)))
			}
			tries("later", "room", "space")
			f.tryAgain(withRoom)
			tries("room", "space")
			f.tryAgain(later)
			tries("later", "room", "space")
			failure["later"] = nil
			w.end(3)
			pass(t, f) // which tries before it sees what has ended
			tries("later", "room", "space")
			pass(t, f)
			tries("room")
			qt.Check(t, qt.HasLen(f.failed, 1))
		})
	})
	t.Run("and leaves out processes that have ended", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		w.fail = func(int, string) error { return syscall.EBUSY }
		w.start(1, "a")
		pass(t, f)
		w.takeTold()
		w.end(1)
		w.fail = func(int, string) error { t.Error("it has ended"); return nil }
		f.tryAgain(later)
		qt.Check(t, qt.HasLen(f.failed, 0))
		w.start(2)
	})
	t.Run("and comes to all in several rounds", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) {
			w := newWorld(t).everywhere()
			f := w.follower(Options{})
			tries := make(map[string]int)
			w.fail = func(part int, file string) error {
				if part == 0 {
					tries[file]++
					time.Sleep(10 * time.Millisecond)
					return syscall.EBUSY
				}
				return nil
			}
			for n := range 50 {
				w.start(100+n, fmt.Sprint("file-", n))
			}
			pass(t, f)
			clear(tries)
			for range 5 {
				began := time.Now()
				f.tryAgain(later)
				qt.Check(t, qt.Equals(time.Since(began), maxRetryRound))
			}
			qt.Check(t, qt.HasLen(tries, 50))
			for _, n := range tries {
				qt.Check(t, qt.Equals(n, 1))
			}
		})
	})
}

func TestWatchReportsAFailureOnceThatWaits(t *testing.T) {
	w := newWorld(t).everywhere()
	f := w.follower(Options{})
	w.fail = func(int, string) error { return syscall.EBUSY }
	w.start(1, "a")
	pass(t, f)
	w.tells("!-1 a 1: device or resource busy")
	for at := range f.failed {
		f.note(target{spot: at}, errWaits, withTime)
	}
	pass(t, f)
	w.tells()
}

// A file and its part may both wait to be tried again. The part fails with the
// file, and is tried again after that.
func TestWatchDoesNotForgetAPartThatFailsWithItsFile(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		var started atomic.Bool
		w.fail = func(part int, _ string) error {
			if part == 0 && !started.Load() {
				return errStarting
			}
			return nil
		}
		f := w.follower(Options{})
		w.start(1, "a")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		for at, failed := range maps.Clone(f.failed) {
			f.failed[spot{at.location, wholeFile}] = &failure{when: later, turn: failed.turn - 1}
			failed.next = time.Now()
		}
		f.tryAgain(later)
		f.following.Lock() // its timer may have tried again meanwhile
		qt.Check(t, qt.HasLen(f.failed, 1))
		f.following.Unlock()
		started.Store(true)
		time.Sleep(time.Second)
		qt.Check(t, qt.HasLen(f.attachments(), 1))
	})
}
