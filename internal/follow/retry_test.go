// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package follow

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
)

func TestClassify(t *testing.T) {
	_, missing := os.Open("/nonexistent/file")
	for _, tc := range []struct {
		err  error
		want When
	}{
		{errors.New("no nop there"), Never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.EOPNOTSUPP), Never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.Errno(524)), Never},
		{missing, Later},
		{&procfs.Error{Op: "open", Err: procfs.ErrChanged}, Later},
		{fmt.Errorf("link: %w", syscall.EPERM), Later},
		{fmt.Errorf("link: %w", syscall.ENOMEM), WithRoom},
		{&os.PathError{Op: "open", Err: syscall.EMFILE}, WithRoom},
	} {
		qt.Check(t, qt.Equals(Classify(tc.err), tc.want), qt.Commentf("%v", tc.err))
	}
}

var errTest = errors.New("failure")

func TestAttemptsReportAFailureOnce(t *testing.T) {
	var a attempts
	key := attempt{Place{File: fileIDs(t, 1)[0]}, 0}
	other := key
	other.part = 1
	full, busy := errors.New("full"), errors.New("busy")
	qt.Check(t, qt.IsTrue(a.fail(key, "", full, WithRoom)))
	qt.Check(t, qt.IsFalse(a.fail(key, "", full, WithRoom)))
	qt.Check(t, qt.IsTrue(a.fail(other, "", full, WithRoom)))
	qt.Check(t, qt.IsTrue(a.fail(key, "", busy, Later)))
	qt.Check(t, qt.IsFalse(a.fail(key, "", busy, Later)))
	qt.Check(t, qt.Equals(a.len(), 2))
	qt.Check(t, qt.IsTrue(a.fail(key, "", busy, Never)))
	qt.Check(t, qt.Equals(a.len(), 1))
}

func TestAttemptsAgain(t *testing.T) {
	t.Run("tries what needs it until it succeeds", func(t *testing.T) {
		var a attempts
		all := newWorld(t).pairs(3)
		inFirst := attempt{inProcess(all[0]), 2}
		second, third := attempt{inEveryProcess(all[1]), 0}, attempt{inEveryProcess(all[2]), 0}
		a.fail(second, "", errTest, Later)
		a.fail(inFirst, "", errTest, WithRoom)
		a.fail(third, "", errTest, WithRoom)

		tried := func(pairs []*procwatch.ProcessFile, when When, failing bool) (tried []attempt) {
			a.again(pairs, when, func(key attempt, pair *procwatch.ProcessFile) {
				qt.Check(t, qt.Equals(pair.File.ID(), key.File))
				tried = append(tried, key)
				if failing {
					a.fail(key, "", errTest, WithRoom)
				}
			})
			return tried
		}
		qt.Check(t, qt.IsTrue(slices.Equal(tried(all, WithRoom, true), []attempt{inFirst, third})))
		qt.Check(t,
			qt.IsTrue(slices.Equal(tried(all, Later, true), []attempt{second, inFirst, third})),
			qt.Commentf("by their last failure"))
		qt.Check(t,
			qt.IsTrue(slices.Equal(tried(all[:2], WithRoom, false), []attempt{second, inFirst})),
			qt.Commentf("one is no pair any more"))
		qt.Check(t, qt.Equals(a.len(), 0))
	})
	t.Run("leaves out processes that have ended", func(t *testing.T) {
		w := newWorld(t)
		pair := w.pairs(1)[0]
		w.end(pair.Process.PID)
		var a attempts
		a.fail(attempt{inProcess(pair), 0}, "", errTest, Later)
		a.again([]*procwatch.ProcessFile{pair}, Later,
			func(attempt, *procwatch.ProcessFile) { t.Error("it has ended") })
		qt.Check(t, qt.Equals(a.len(), 0))
	})
	t.Run("comes to all in several rounds", func(t *testing.T) {
		all := newWorld(t).pairs(50)
		synctest.Test(t, func(t *testing.T) {
			var a attempts
			for _, pair := range all {
				a.fail(attempt{inEveryProcess(pair), 0}, "", errTest, Later)
			}
			tries := make(map[attempt]int)
			for range 5 {
				start := time.Now()
				a.again(all, Later, func(key attempt, _ *procwatch.ProcessFile) {
					time.Sleep(10 * time.Millisecond)
					tries[key]++
					a.fail(key, "", errTest, Later)
				})
				qt.Check(t, qt.Equals(time.Since(start), 100*time.Millisecond))
			}
			qt.Check(t, qt.HasLen(tries, 50))
			for _, pair := range all {
				qt.Check(t, qt.Equals(tries[attempt{inEveryProcess(pair), 0}], 1))
			}
		})
	})
}

// What waits for time before it is tried again fails as before.
func TestAttemptsReportAFailureOnceThatWaits(t *testing.T) {
	var a attempts
	key := attempt{Place{File: fileIDs(t, 1)[0]}, 0}
	busy := errors.New("busy")
	qt.Check(t, qt.IsTrue(a.fail(key, "", busy, Later)))
	a.fail(key, "", errWaits, WithTime)
	qt.Check(t, qt.Equals(a.failed[key].when, WithTime))
	qt.Check(t, qt.IsFalse(a.fail(key, "", busy, Later)))
}
