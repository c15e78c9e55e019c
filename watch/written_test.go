// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// overwrite puts other probes into a file, or only touches it.
func (w *world) overwrite(name, provider string) {
	w.t.Helper()
	path := filepath.Join(w.files, name)
	testprog.WriteNotes(w.t, path+".new", []testprog.Note{{Provider: provider, Name: name}})
	text, err := os.ReadFile(path + ".new")
	qt.Assert(w.t, qt.IsNil(err))
	qt.Assert(w.t, qt.IsNil(os.WriteFile(path, text, 0o644)))
	qt.Assert(w.t, qt.IsNil(os.Chtimes(path, time.Time{}, time.Now().Add(time.Hour))))
}

func TestWatchAttachesAFileAnewThatWasWrittenTo(t *testing.T) {
	t.Run("in every process", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{})
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a")
		w.overwrite("a", "p")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tells()
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tellsInOrder("-0 a", "+0 a")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 2)))
		w.tells()
		qt.Check(t, qt.HasLen(f.attachments(), 1))
		qt.Check(t, qt.Equals(w.opened, 1))
	})
	// The second process has not been scanned since the file was written to.
	t.Run("in every process, one of which ends", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: -1})
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a")
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tellsInOrder("-0 a", "+0 a")
		w.end(1)
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tells()
		qt.Check(t, qt.HasLen(f.attachments(), 1))
		w.end(2)
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 2)))
		w.tells("-0 a")
	})
	t.Run("in each process", func(t *testing.T) {
		w := newWorld(t)
		f := w.follower(Options{})
		w.start(1, "a")
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a 1", "+0 a 2")
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tells("-0 a 1", "-0 a 2", "+0 a 1", "+0 a 2")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 2)))
		w.tells()
		qt.Check(t, qt.HasLen(f.attachments(), 2))
		w.end(2)
		pass(t, f)
		w.tells("-0 a 2")
	})
}

// The driver reports a write before the contents change.
func TestWatchAttachesAgainAfterAWrite(t *testing.T) {
	t.Run("while processes map the file", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{})
		w.start(1, "a")
		pass(t, f)
		w.start(2, "a")
		pass(t, f)
		w.tells("+0 a")
		writer, err := os.OpenFile(filepath.Join(w.files, "a"), os.O_WRONLY, 0)
		qt.Assert(t, qt.IsNil(err))
		w.isWritten["a"]()
		w.tells("-0 a", "!0 a 1: "+errWritten.Error())
		w.start(3, "a") // is not attached to what is half written
		pass(t, f)
		w.tells()
		writer.Close()
		testneeds.Await(t, 10*time.Second, "the file is attached again", func() bool {
			return len(f.attachments()) == 1
		})
		w.tells("+0 a")
	})
	t.Run("all its parts", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.followerOf(3, Options{})
		w.start(1, "a")
		pass(t, f)
		w.tells("+0 a", "+1 a", "+2 a")
		w.isWritten["a"]()
		testneeds.Await(t, 10*time.Second, "the file is attached again", func() bool {
			return len(f.attachments()) == 3
		})
	})
	t.Run("while it is attached", func(t *testing.T) {
		w := newWorld(t).everywhere()
		var attached atomic.Int32
		goOn := make(chan struct{})
		w.fail = func(part int, _ string) error {
			if part == 0 && attached.Add(1) == 1 {
				<-goOn
			}
			return nil
		}
		f := w.follower(Options{})
		f.patience = testneeds.Patience(time.Minute)
		f.running.Add(1) // the call has a turn
		w.start(1, "a")
		pass(t, f)
		w.tells()
		w.isWritten["a"]()
		close(goOn)
		// What the first call attached is detached already.
		testneeds.Await(t, 10*time.Second, "the file is attached again", func() bool {
			return attached.Load() == 2
		})
		pass(t, f)
		w.tells("+0 a")
	})
	t.Run("while the file lingers", func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{Linger: time.Hour})
		w.start(1, "a")
		pass(t, f)
		w.end(1)
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tells("+0 a")
		w.isWritten["a"]()
		w.tells("-0 a")
		qt.Check(t, qt.Equals(w.opened, 0))
	})
	t.Run("before the watch has it open", func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.whileOpened = func(written func()) {
			w.whileOpened = nil
			written() // waits until the call has had its turn
		}
		f := w.follower(Options{})
		f.running.Add(1)
		w.start(1, "a")
		pass(t, f)
		testneeds.Await(t, 10*time.Second, "it is opened anew and attached", func() bool {
			all := f.attachments()
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(all) == 1 && !all[0].written
		})
	})
	t.Run("while it is opened", func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.hasWriter = true
		f := w.follower(Options{})
		w.start(1, "a")
		pass(t, f)
		w.tells()
		qt.Check(t, qt.Equals(w.opened, 0))
		f.following.Lock()
		w.hasWriter = false
		f.following.Unlock()
		testneeds.Await(t, 10*time.Second, "the file is attached", func() bool {
			return len(f.attachments()) == 1
		})
		w.tells("+0 a")
	})
	t.Run("without a lease a file does not linger", func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.noLease = true
		f := w.follower(Options{Linger: time.Hour})
		w.start(1, "a")
		pass(t, f)
		w.end(1)
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.tellsInOrder("+0 a", "-0 a")
	})
}

// What is attached must not be what was read before the file was written to.
func TestWatchReadsAFileAnewThatItCannotOpen(t *testing.T) {
	w := newWorld(t)
	f := w.follower(Options{})
	w.start(1, "a")
	w.fail = func(part int, file string) error {
		if part == wholeFile {
			w.fail = func(int, string) error { return nil }
			w.overwrite(file, "q")
		}
		return nil
	}
	pass(t, f)
	w.tells("!-1 a 1: " + procfs.ErrChanged.Error())
	pass(t, f)
	w.tells("+0 a 1")
}

// A file that was too large to be opened may be smaller once it has been
// written to, and counts as long as a process maps it.
func TestWatchOpensAFileAnewThatWasTooLarge(t *testing.T) {
	w := newWorld(t).everywhere()
	large := true
	w.fail = func(part int, file string) error {
		if large && part == wholeFile {
			return elffile.TooLarge(errors.New("too many sites"))
		}
		return nil
	}
	f := w.follower(Options{Linger: -1})
	w.start(1, "a")
	pass(t, f)
	w.tells("!-1 a 1: too many sites")
	qt.Check(t, qt.Equals(f.Stats().OverLimit, 1))
	large = false
	w.overwrite("a", "q")
	qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
	w.tells("+0 a")
	qt.Check(t, qt.Equals(f.Stats().OverLimit, 0))

	large = true
	w.start(2, "b")
	pass(t, f)
	qt.Check(t, qt.Equals(f.Stats().OverLimit, 1))
	w.takeTold()
	w.end(2)
	pass(t, f)
	qt.Check(t, qt.Equals(f.Stats().OverLimit, 0))
	w.start(3, "b")
	pass(t, f)
	w.tells()
	qt.Check(t, qt.Equals(f.Stats().OverLimit, 1))
}

// A user could have the kernel leak a uprobe for each semaphore that is
// detached from a process which goes on, again and again.
func TestWatchBoundsWhatMayLeak(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.semaphores = leaksAtOnce/2 + 1
		f := w.follower(Options{})
		w.start(1, "a")
		pass(t, f)
		w.tells("+0 a")
		for n := range 2 {
			w.overwrite("a", fmt.Sprint("p", n))
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		}
		w.tells("-0 a", "+0 a", "-0 a", "!0 a 1: "+errLeaks.Error())
		pass(t, f)
		w.tells()
		w.startOf(1001, 2, "b") // another user's
		pass(t, f)
		w.tells("+0 b")
		time.Sleep(3 * leakEvery)
		pass(t, f)
		w.tells("+0 a")
		w.end(2) // takes nothing of that
		pass(t, f)
		time.Sleep(2 * time.Second)
		w.tells("-0 b")
		qt.Check(t, qt.HasLen(f.budget.leaks, 1))
	})
}
