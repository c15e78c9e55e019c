// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package watch

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/attaching"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/usdt/proc"
)

// A file that does not answer when it is opened or attached holds up neither
// other files nor Close.
func TestWatchGoesOnWithoutAFileThatBlocks(t *testing.T) {
	for name, blockedPart := range map[string]int{"opening": wholeFile, "attaching": 0} {
		blocking := func(w *world) (unblock, returned chan struct{}) {
			unblock, returned = make(chan struct{}), make(chan struct{}, 10)
			w.fail = func(part int, file string) error {
				if part == blockedPart && (file == "bad" || file == "worse" || file == "worst") {
					<-unblock
					returned <- struct{}{}
				}
				return nil
			}
			return unblock, returned
		}
		bubble := func(name string, test func(t *testing.T)) {
			t.Run(name, func(t *testing.T) { whileNothingGoesOn(t, test) })
		}
		bubble(name, func(t *testing.T) {
			w := newWorld(t).everywhere()
			unblock, _ := blocking(w)
			f := w.follower(Options{})
			f.patience = 20 * time.Millisecond
			w.start(1, "bad")
			w.start(2, "worse")
			w.start(3, "good")
			w.start(4, "worst")
			for _, pid := range []string{"1", "2", "4"} {
				w.write(pid+"/cgroup", "0::/hostile\n")
			}
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			told := w.takeTold()
			qt.Check(t, qt.IsTrue(slices.Contains(told, "+0 good")))
			qt.Check(t, qt.HasLen(told, 4), qt.Commentf("%v", told))
			qt.Check(t, qt.Equals(f.countUnanswered(), 2),
				qt.Commentf("all are of one owner"))

			// No pass waits for them again.
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			w.tells()
			qt.Check(t, qt.Equals(f.countUnanswered(), 2))

			// A file that answers after all is attached.
			close(unblock)
			testneeds.Await(t, 10*time.Second, "all are attached",
				func() bool { return len(f.attachments()) == 4 })
		})
		bubble(name+" and closing", func(t *testing.T) {
			w := newWorld(t).everywhere()
			unblock, returned := blocking(w)
			f := w.follower(Options{})
			f.patience = 20 * time.Millisecond
			w.start(1, "bad")
			qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
			err := f.Close()
			qt.Check(t, qt.Equals(errors.Is(err, proc.ErrBlocked), blockedPart == 0),
				qt.Commentf("what may be attached yet is named: %v", err))
			close(unblock)
			<-returned
			// An attachment that comes too late is undone.
			f.awaitAnswers(t)
			testneeds.Await(t, 10*time.Second, "nothing is attached or open", func() bool {
				w.mu.Lock()
				defer w.mu.Unlock()
				return len(w.attached) == 0 && w.opened == 0
			})
		})
	}
}

// A slow call is no blocked one: Close waits until nothing can be attached.
func TestWatchCloseWaitsForAttaching(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		w.fail = func(part int, _ string) error {
			if part == 0 {
				time.Sleep(attaching.LinkPatience)
			}
			return nil
		}
		f := w.follower(Options{})
		w.start(1, "slow")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		qt.Assert(t, qt.IsNil(f.Close()))
		qt.Check(t, qt.HasLen(w.attached, 0))
		qt.Check(t, qt.Equals(w.opened, 0))
	})
}

// A busy machine holds up a process of the caller's own, too.
func TestPatientWatchGoesOnWithNothing(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		f := w.follower(Options{})
		f.patience, f.opts.Patient = 20*time.Millisecond, true
		w.fail = func(int, string) error {
			time.Sleep(10 * f.patience)
			return nil
		}
		w.start(1, "slow")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		w.tells("+0 slow")
		qt.Check(t, qt.Equals(f.countUnanswered(), 0))
	})
}

// The processes of a file wait for the one that is being attached, and are
// attached as soon as that has been, not at some later pass.
func TestWatchAttachesTheOthersOfAFileOnceItAnswers(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t)
		unblock := w.blockAttaching()
		f := w.follower(Options{})
		f.patience = 20 * time.Millisecond
		for pid := 1; pid <= 3; pid++ {
			w.start(pid, "a")
		}
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		told := w.takeTold()
		qt.Assert(t, qt.HasLen(told, 3))
		for _, line := range told {
			qt.Check(t, qt.StringContains(line, proc.ErrBlocked.Error()))
		}
		qt.Check(t, qt.Equals(f.Stats().Waiting, 3))
		close(unblock)
		testneeds.Await(t, 10*time.Second, "all three are attached",
			func() bool { return len(f.attachments()) == 3 })
		f.awaitAnswers(t)
		w.tells("+0 a 1", "+0 a 2", "+0 a 3")
		testneeds.Await(t, 10*time.Second, "none waits", func() bool { return f.Stats().Waiting == 0 })
	})
}

// With perf events, the kernel waits for each site.
func TestWatchIsPatientWithManySites(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t)
		w.sites = map[string]int{"many": 70}
		w.fail = func(part int, file string) error {
			if part == 0 {
				time.Sleep(2 * deadline.File)
			}
			return nil
		}
		f := w.follower(Options{})
		f.patience = deadline.File
		w.start(1, "many")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		w.tells("+0 many 1")
		w.start(2, "few")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		qt.Check(t, qt.HasLen(f.attachments(), 1))
		testneeds.Await(t, 10*time.Second, "it is attached late",
			func() bool { return len(f.attachments()) == 2 })
	})
}

// Time is not shared out among the caller's own processes.
func TestPatientWatchPostponesNothing(t *testing.T) {
	w := newWorld(t).everywhere()
	f := w.follower(Options{})
	f.opts.Patient = true
	f.running.Add(1)
	w.start(1, "a")
	f.budget.spend(deadline.OwnerOf(w.root, 1), time.Now(), time.Hour)
	qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
	w.tells("+0 a")
}

func TestWatchTellsNothingLateWhenClosed(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		unblock := make(chan struct{})
		w.fail = func(int, string) error { <-unblock; return errTest }
		f := w.follower(Options{})
		f.patience = 20 * time.Millisecond
		w.start(1, "bad")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		_ = f.Close()
		w.takeTold()
		close(unblock)
		f.awaitAnswers(t)
		w.tells()
	})
}

// A file that was written to while it was being attached is not attached with
// its old sites.
func TestWatchAttachesNothingLateThatWasWrittenTo(t *testing.T) {
	whileNothingGoesOn(t, func(t *testing.T) {
		w := newWorld(t).everywhere()
		unblock := w.blockAttaching()
		f := w.follower(Options{})
		f.patience = 20 * time.Millisecond
		w.start(1, "a")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 0)))
		w.takeTold()
		w.overwrite("a", "q")
		qt.Assert(t, qt.IsNil(f.Sync(t.Context(), 1)))
		w.takeTold()
		close(unblock)
		testneeds.Await(t, 10*time.Second, "it is attached anew",
			func() bool { return len(f.attachments()) == 1 })
		w.tells("+0 a")
	})
}

// blockAttaching has attaching return only when the channel is closed.
func (w *world) blockAttaching() (unblock chan struct{}) {
	unblock = make(chan struct{})
	w.fail = func(part int, _ string) error {
		if part == 0 {
			<-unblock
		}
		return nil
	}
	return unblock
}

// awaitAnswers waits until everything that was set aside has answered.
func (f *Watch) awaitAnswers(t *testing.T) {
	t.Helper()
	testneeds.Await(t, 10*time.Second, "nothing is set aside", func() bool {
		f.following.Lock()
		defer f.following.Unlock()
		return len(f.calls) == 0
	})
}

func (f *Watch) countUnanswered() (calls int) {
	calls, _ = f.unanswered.Count()
	return calls
}
