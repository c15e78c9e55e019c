// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

// Processes and files that do not answer are named, others are watched, and
// one signal ends it all.
func TestHostileUsersDoNotKeepItFromEnding(t *testing.T) {
	testprog.LeakCheck(t)
	hostile := testprog.StartUnanswering(t, testprog.Path(t, "target-static"))
	innocent := startTarget(t, "target-pie")
	const most = 2 * time.Second
	ends := func(r *running, signal syscall.Signal) (took time.Duration) {
		t.Helper()
		began := time.Now()
		qt.Assert(t, qt.IsNil(r.cmd.Process.Signal(signal)))
		<-r.ended
		took = time.Since(began)
		qt.Check(t, qt.IsTrue(took < testneeds.Patience(most)), qt.Commentf("ended after %v", took))
		return took
	}
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		costs := testprog.StartCosts(t)
		began := time.Now()
		r := startUnchecked(t, "-a", "gousdt_test:three")
		r.await(&r.stderr, "(Ctrl-C ends)")
		late := time.Since(began)
		qt.Check(t, qt.IsTrue(late < testneeds.Patience(most)), qt.Commentf("attached after %v", late))
		innocent.Fire("three", 1)
		r.await(&r.stdout, fmt.Sprint(innocent.PID))
		took := ends(r, signal)
		costs.Report(2, fmt.Sprintf("usdttrace -a, ended by %v", signal), "not before a second signal",
			fmt.Sprintf("ends in %.2f s", took.Seconds()), late)
	}
	for pid, what := range hostile {
		t.Run(what, func(t *testing.T) {
			r := startUnchecked(t, "-p", fmt.Sprint(pid), "gousdt_test:three")
			if what == testprog.CanBeAttached {
				r.await(&r.stderr, "(Ctrl-C ends)")
				ends(r, syscall.SIGINT)
				return
			}
			<-r.ended
			qt.Check(t, qt.StringContains(r.stderr.String(), "no answer"))
		})
	}
}

// A file that was named and does not answer does not keep usdttrace from
// ending, either.
func TestHostileFileThatWasNamed(t *testing.T) {
	contents, err := os.ReadFile(testprog.Path(t, "target-static"))
	qt.Assert(t, qt.IsNil(err))
	server := testprog.MountFUSE(t, map[string][]byte{"program": contents})
	server.Stop(testprog.FUSERead)
	r := startUnchecked(t, filepath.Join(server.Dir, "program"), "gousdt_test:three")
	server.AwaitStopped(testprog.FUSERead)
	began := time.Now()
	qt.Assert(t, qt.IsNil(r.cmd.Process.Signal(syscall.SIGINT)))
	<-r.ended
	took := time.Since(began)
	qt.Check(t, qt.IsTrue(took < testneeds.Patience(2*time.Second)), qt.Commentf("ended after %v", took))
}

// startUnchecked is start without a check of what is left: the kernel detaches
// when the last thread ends, which waits for the servers.
func startUnchecked(t *testing.T, args ...string) *running {
	t.Helper()
	return startIn(t, func(*exec.Cmd) {}, args...)
}
