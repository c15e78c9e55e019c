// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
)

func TestCleanUpAfterATracerThatWasKilled(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	p := startTarget(t, "target-static")
	running := watching(t, "--mode", "single-ip", p.path, "gousdt_test:many")
	killed := watching(t, "--mode", "single-ip", p.path, "gousdt_test:many")
	qt.Assert(t, qt.IsNil(killed.cmd.Process.Signal(syscall.SIGKILL)))
	killed.wait()

	name := fmt.Sprintf("p%d_", killed.cmd.Process.Pid)
	result := start(t, "--cleanup").wait()
	qt.Check(t, qt.Equals(result.status, exitWatched))
	qt.Check(t, qt.Equals(result.stderr, ""))
	qt.Assert(t, qt.IsTrue(strings.HasPrefix(result.stdout, "removed gousdt/"+name)),
		qt.Commentf("%s", result.stdout))
	for left := range testprog.SharedEvents(t) {
		qt.Check(t, qt.IsTrue(strings.HasPrefix(left, fmt.Sprintf("p%d_", running.cmd.Process.Pid))))
	}

	result = start(t, "--cleanup").wait()
	qt.Check(t, qt.Equals(result.status, exitNothing))
	qt.Check(t, qt.Equals(result.stdout+result.stderr, ""))
	running.interrupt().ok()
	qt.Check(t, qt.HasLen(testprog.SharedEvents(t), 0))
}

// Whoever has to wait for the kernel is told so, and how long.
func TestSaysHowLongDetachingTakes(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	for _, dir := range []string{testprog.Tracefs, "/sys/kernel/debug"} {
		qt.Assert(t, qt.IsNil(unix.Mount("none", dir, "tmpfs", 0, "")))
	}
	p := startTarget(t, "target-static")
	result := watching(t, "--mode", "single-ip", p.path, "gousdt_test:[a-e]*", "gousdt_test:i*",
		"gousdt_test:[t-z]*").interrupt()
	result.ok()
	qt.Check(t,
		qt.Matches(result.stderr,
			`(?s).*usdttrace: detaching takes some [1-9][0-9]* s: this kernel closes [1-9][0-9]+ perf events .*`))
}
