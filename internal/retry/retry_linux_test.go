// SPDX-License-Identifier: BSD-2-Clause

package retry_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/retry"
	"github.com/gousdt/gousdt/proc"
)

func TestWhatTheSystemRefusesMayPass(t *testing.T) {
	_, missing := os.Open("/nonexistent/file")
	for _, tc := range []struct {
		err  error
		want retry.When
	}{
		{errors.New("no nop there"), retry.Never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.EOPNOTSUPP), retry.Never},
		{fmt.Errorf("the kernel refuses a breakpoint: %w", syscall.Errno(524)), retry.Never},
		{missing, retry.Later},
		{&proc.Error{Op: "open", Err: proc.ErrChanged}, retry.Later},
		{fmt.Errorf("link: %w", syscall.EPERM), retry.Later},
		{fmt.Errorf("link: %w", syscall.ENOMEM), retry.WithRoom},
		{&os.PathError{Op: "open", Err: syscall.EMFILE}, retry.WithRoom},
	} {
		qt.Check(t, qt.Equals(retry.Classify(tc.err), tc.want), qt.Commentf("%v", tc.err))
	}
}

// pairs returns pairs of files, of this process.
func pairs(t *testing.T, n int) []*proc.Pair {
	t.Helper()
	process, err := proc.NewFS("").Process(os.Getpid())
	qt.Assert(t, qt.IsNil(err))
	all := make([]*proc.Pair, n)
	for i := range all {
		all[i] = &proc.Pair{Process: process, File: new(proc.CachedFile)}
	}
	return all
}

// anywhere is the key of a pair's file in every process.
func anywhere(pair *proc.Pair) retry.Key {
	return retry.Key{PairKey: proc.PairKey{File: pair.File}}
}

func TestAFailureIsNewsOnce(t *testing.T) {
	var attempts retry.Attempts
	key := anywhere(pairs(t, 1)[0])
	other := key
	other.Program = 1
	full, busy := errors.New("full"), errors.New("busy")
	qt.Check(t, qt.IsTrue(attempts.Fail(key, full, retry.WithRoom)))
	qt.Check(t, qt.IsFalse(attempts.Fail(key, full, retry.WithRoom)))
	qt.Check(t, qt.IsTrue(attempts.Fail(other, full, retry.WithRoom)))
	qt.Check(t, qt.IsTrue(attempts.Fail(key, busy, retry.Later)))
	qt.Check(t, qt.IsFalse(attempts.Fail(key, busy, retry.Later)))
	qt.Check(t, qt.Equals(attempts.Len(), 2))
	qt.Check(t, qt.IsTrue(attempts.Fail(key, busy, retry.Never)))
	qt.Check(t, qt.Equals(attempts.Len(), 1))
}

func TestAgainTriesUntilItSucceeds(t *testing.T) {
	var attempts retry.Attempts
	all := pairs(t, 3)
	failure := errors.New("failure")
	inProcess := retry.Key{PairKey: all[0].Key(), Program: 2}
	attempts.Fail(anywhere(all[1]), failure, retry.Later)
	attempts.Fail(inProcess, failure, retry.WithRoom)
	attempts.Fail(anywhere(all[2]), failure, retry.WithRoom)

	var tried []retry.Key
	again := func(pairs []*proc.Pair, when retry.When, failing bool) {
		tried = nil
		attempts.Again(pairs, when, func(key retry.Key, pair *proc.Pair) {
			qt.Check(t, qt.Equals(pair.File, key.File))
			tried = append(tried, key)
			if failing {
				attempts.Fail(key, failure, retry.WithRoom)
			}
		})
	}
	again(all, retry.WithRoom, true)
	qt.Check(t, qt.IsTrue(slices.Equal(tried, []retry.Key{inProcess, anywhere(all[2])})))
	again(all, retry.Later, true)
	qt.Check(t, qt.IsTrue(slices.Equal(tried, []retry.Key{anywhere(all[1]), inProcess, anywhere(all[2])})), qt.Commentf("by their last failure"))
	again(all[:2], retry.WithRoom, false)
	qt.Check(t, qt.IsTrue(slices.Equal(tried, []retry.Key{anywhere(all[1]), inProcess})), qt.Commentf("one is no pair any more"))
	qt.Check(t, qt.Equals(attempts.Len(), 0))
}

func TestAgainLeavesOutProcessesThatHaveEnded(t *testing.T) {
	cmd := exec.Command("/bin/true")
	qt.Assert(t, qt.IsNil(cmd.Start()))
	process, err := proc.NewFS("").Process(cmd.Process.Pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(cmd.Wait()))

	pair := &proc.Pair{Process: process, File: new(proc.CachedFile)}
	var attempts retry.Attempts
	attempts.Fail(retry.Key{PairKey: pair.Key()}, errors.New("failure"), retry.Later)
	attempts.Again([]*proc.Pair{pair}, retry.Later, func(retry.Key, *proc.Pair) { t.Error("it has ended") })
	qt.Check(t, qt.Equals(attempts.Len(), 0))
}

func TestAgainComesToAllInSeveralRounds(t *testing.T) {
	all := pairs(t, 50)
	synctest.Test(t, func(t *testing.T) {
		var attempts retry.Attempts
		failure := errors.New("failure")
		for _, pair := range all {
			attempts.Fail(anywhere(pair), failure, retry.Later)
		}
		tries := make(map[retry.Key]int)
		for range 5 {
			start := time.Now()
			attempts.Again(all, retry.Later, func(key retry.Key, _ *proc.Pair) {
				time.Sleep(10 * time.Millisecond)
				tries[key]++
				attempts.Fail(key, failure, retry.Later)
			})
			qt.Check(t, qt.Equals(time.Since(start), 100*time.Millisecond))
		}
		for _, pair := range all {
			qt.Check(t, qt.Equals(tries[anywhere(pair)], 1))
		}
	})
}
