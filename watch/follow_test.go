// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"context"
	"fmt"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/usdt/proc"
)

func pass(t *testing.T, f *Watch) {
	t.Helper()
	qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
}

func TestWatch(t *testing.T) {
	t.Run("attaches a file once in every process", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: -1})
		w.start(1, "a", "b")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a", "+0 b")
		w.end(1)
		pass(t, f)
		w.tells("-0 b")
		w.start(2)
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 2)))
		w.tells("-0 a")
	})
	t.Run("attaches a file in each process", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{PerProcess: true})
		w.start(1, "a", "b")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a 1", "+0 b 1", "+0 a 2")
		qt.Check(t, qt.Equals(w.opened, 2), qt.Commentf("a file is opened once for all processes"))
		w.end(1)
		pass(t, f)
		w.tells("-0 a 1", "-0 b 1")
		qt.Check(t, qt.Equals(w.opened, 1))
		qt.Check(t, qt.Equals(f.attachments()[0].String(), "0 a 2"))
	})
	t.Run("attaches some files in each process and others in every process", func(t *testing.T) {
		w := newWorld(t)
		w.perFile = func(file string) bool { return file == "a" }
		f := w.follower(Options{})
		w.start(1, "a", "b")
		w.start(2, "a", "b")
		pass(t, f)
		w.tells("+0 a 1", "+0 a 2", "+0 b")
	})
	t.Run("attaches one part after the other", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.followerOf(2, Options{})
		w.start(1, "a", "b")
		pass(t, f)
		w.tellsInOrder("+0 a", "+0 b", "+1 a", "+1 b")
	})
	t.Run("calls the handler between attaching and telling", func(t *testing.T) {
		w := newWorld(t)
		var f *Watch
		f = w.follower(Options{Mapped: func(_, _ []*proc.ProcessFile) {
			w.told = append(w.told, fmt.Sprint("handler ", len(f.attached)))
		}})
		w.start(1, "a")
		pass(t, f)
		w.tellsInOrder("handler 1", "+0 a 1")
		w.end(1)
		w.start(2)
		pass(t, f)
		w.tellsInOrder("handler 0", "-0 a 1")
		w.start(2, "a")
		pass(t, f)
		qt.Assert(t, qt.IsNil(f.Close()))
		w.tellsInOrder("handler 1", "+0 a 2", "-0 a 2", "handler 0")
	})
	t.Run("needs the PIDs of its own namespace for single processes", func(t *testing.T) {
		w := newWorld(t)
		w.write("self/status", "NSpid:\t1\t2\n")
		_, err := newWatch(w, Options{PerProcess: true, Proc: proc.FS(w.root)}, 1)
		qt.Check(t, qt.ErrorMatches(err, ".* needs the PIDs of the caller's own PID namespace.*"))
	})
}

// An attachment is to a file, not to where it is mapped.
func TestWatchMoves(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.startAt(1, 0x1000, "a")
	pass(t, f)
	w.tells("+0 a 1")
	w.startAt(1, 0x5000, "a")
	qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
	w.tells()
}

func TestWatchLingers(t *testing.T) {
	t.Run("where a file is attached in every process", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: time.Hour})
		w.start(9)
		for pid := range 3 {
			w.start(1+pid, "a")
			pass(t, f)
			w.end(1 + pid)
			pass(t, f)
			qt.Check(t, qt.Equals(w.opened, 1))
		}
		w.tells("+0 a")
		qt.Assert(t, qt.IsNil(f.Close()))
		w.tells("-0 a")
	})
	t.Run("until its time is over", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) {
			w := newWorld(t).everywhere()
			f := w.follower(Options{Linger: time.Millisecond})
			w.start(9)
			for range 2 {
				w.start(1, "a")
				pass(t, f)
				w.end(1)
				pass(t, f)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				w.tellsInOrder("+0 a", "-0 a")
			}
		})
	})
	t.Run("until something else needs room", func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.room = 2
		f := w.follower(Options{Linger: time.Hour})
		w.start(1, "a")
		w.start(2, "b")
		pass(t, f)
		w.end(1)
		pass(t, f)
		w.tells("+0 a", "+0 b")
		w.start(3, "c")
		pass(t, f)
		w.tellsInOrder("-0 a", "+0 c")
	})
	t.Run("and attaches then what a file lacked", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.followerOf(2, Options{Linger: time.Hour})
		w.fail = func(part int, _ string) error {
			if part == 1 {
				return errTest
			}
			return nil
		}
		w.start(9)
		w.start(1, "a")
		pass(t, f)
		w.tells("+0 a", "!1 a 1: failure")
		w.end(1)
		pass(t, f)
		w.fail = func(int, string) error { return nil }
		w.start(2, "a")
		pass(t, f)
		w.tells("+1 a")
	})
}

func TestWatchMakesRoom(t *testing.T) {
	t.Run("by what has disappeared", func(t *testing.T) {
		for _, linger := range []time.Duration{-1, time.Hour} {
			w := newWorld(t).everywhere()
			w.room = 1
			f := w.follower(Options{Linger: linger})
			w.start(1, "a")
			pass(t, f)
			w.end(1)
			w.start(2, "b")
			pass(t, f)
			w.tellsInOrder("+0 a", "-0 a", "+0 b")
		}
	})
	t.Run("for what lacked it before", func(t *testing.T) {
		w := newWorld(t)
		w.room = 1
		f := w.follower(Options{})
		w.start(1, "a")
		pass(t, f)
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a 1", "!0 a 2: no room")
		for range 3 {
			pass(t, f)
		}
		w.tells() // it has been told
		w.end(1)
		pass(t, f)
		f.closing.Wait()
		w.tellsInOrder("-0 a 1", "+0 a 2")
	})
}

func TestWatchTriesAgain(t *testing.T) {
	for name, part := range map[string]int{"to open a file": wholeFile, "to attach": 0} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			before := 0
			f := w.follower(Options{BeforePass: func() { before++ }})
			tries := 0
			w.fail = func(failing int, _ string) error {
				if failing != part {
					return nil
				}
				if tries++; tries > 3 {
					return nil
				}
				return syscall.EPERM
			}
			w.start(1, "a")
			pass(t, f)
			w.tells(fmt.Sprintf("!%d a 1: operation not permitted", part))
			pass(t, f)
			pass(t, f)
			w.tells()
			pass(t, f)
			w.tells("+0 a 1")
			pass(t, f)
			qt.Check(t, qt.Equals(tries, 4))
			qt.Check(t, qt.Equals(before, 5))
		})
	}
	t.Run("nothing that cannot succeed", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		tries := 0
		w.fail = func(int, string) error { tries++; return errTest }
		w.start(1, "a")
		pass(t, f)
		pass(t, f)
		w.tells("!-1 a 1: failure")
		qt.Check(t, qt.Equals(tries, 1))
	})
	t.Run("no file that is too large", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		tries := 0
		w.fail = func(int, string) error { tries++; return elffile.ErrTooLarge }
		for pid := range 3 {
			w.start(1+pid, "a")
			pass(t, f)
		}
		w.tells("!-1 a 1: " + elffile.ErrTooLarge.Error())
		qt.Check(t, qt.Equals(tries, 1))
	})
}

func TestWatchGoesOnWhereAFileFails(t *testing.T) {
	w := newWorld(t)
	f := w.followerOf(2, Options{})
	w.fail = func(part int, file string) error {
		if file == "b" && part == wholeFile || file == "a" && part == 0 {
			return errTest
		}
		return nil
	}
	w.start(1, "a", "b", "c")
	pass(t, f)
	w.tellsInOrder("+0 c 1", "+1 a 1", "+1 c 1", "!0 a 1: failure", "!-1 b 1: failure")
}

func TestWatchMissesProcesses(t *testing.T) {
	w := newWorld(t)
	f := w.followerOf(2, Options{})
	w.fail = func(part int, _ string) error {
		if part == wholeFile {
			return nil
		}
		w.end(1)
		return syscall.ESRCH
	}
	w.start(1, "a")
	w.start(2)
	pass(t, f)
	w.tells("missed a 1")
}

func TestWatchStop(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.start(1, "a")
	pass(t, f)
	f.Stop()
	w.start(2, "a")
	qt.Check(t, qt.ErrorIs(f.Sync(t.Context(), 0), os.ErrClosed))
	qt.Check(t, qt.ErrorIs(f.Sync(t.Context(), 2), os.ErrClosed))
	qt.Check(t, qt.ErrorIs(f.Run(t.Context(), time.Hour), os.ErrClosed))
	qt.Check(t, qt.HasLen(f.attachments(), 1))
	w.tells("+0 a 1")
}

func TestWatchStopsWhileItAttaches(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.fail = func(part int, file string) error {
		if part == 0 {
			f.Stop()
		}
		return nil
	}
	w.start(1, "a", "b")
	pass(t, f)
	w.tells("+0 a 1")
}

func TestWatchClose(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.start(1, "a", "b")
	ran := make(chan error)
	go func() { ran <- f.Run(context.Background(), time.Millisecond) }()
	testneeds.Await(t, 10*time.Second, "two are attached",
		func() bool { return len(f.attachments()) == 2 })
	qt.Check(t, qt.IsNil(f.Close()))
	qt.Check(t, qt.ErrorIs(<-ran, os.ErrClosed))
	qt.Check(t, qt.HasLen(f.attachments(), 0))
	qt.Check(t, qt.HasLen(w.attached, 0))
	qt.Check(t, qt.ErrorIs(f.Sync(t.Context(), 0), os.ErrClosed))
	qt.Check(t, qt.IsNil(f.Close()))
}

func TestWatchForgetsWhatTheDriverHasClosed(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.fail = func(int, string) error { return fmt.Errorf("manager: %w", os.ErrClosed) }
	w.start(1, "a")
	pass(t, f)
	w.tells()
}
