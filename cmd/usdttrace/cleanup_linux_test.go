// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
)

func TestCleanUpAfterATracerThatWasKilled(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	p := startTarget(t, "target-static")
	running := watching(t, "--mode", "single-ip", p.path, "gousdt_test:many")

	// Other tracers of the machine have events, too, and may be killed.
	ofRunning := fmt.Sprintf("p%d_", running.cmd.Process.Pid)
	has := func(prefix string) bool {
		for event := range testprog.SharedEvents(t) {
			if strings.HasPrefix(event, prefix) {
				return true
			}
		}
		return false
	}
	var ofKilled, said string
	for range 20 {
		killed := watching(t, "--mode", "single-ip", p.path, "gousdt_test:many")
		qt.Assert(t, qt.IsNil(killed.cmd.Process.Signal(syscall.SIGKILL)))
		killed.wait()
		ofKilled = fmt.Sprintf("p%d_", killed.cmd.Process.Pid)
		// One that starts removes them, too: then this has shown nothing.
		result := start(t, "--cleanup").wait()
		said = result.stdout
		qt.Check(t, qt.Equals(result.stderr, ""))
		qt.Check(t, qt.Equals(result.status == exitWatched, said != ""))
		qt.Assert(t, qt.IsFalse(has(ofKilled)))
		if strings.Contains(said, "removed gousdt/"+ofKilled) {
			break
		}
	}
	qt.Check(t, qt.StringContains(said, "removed gousdt/"+ofKilled))
	qt.Check(t, qt.IsTrue(has(ofRunning)))

	result := start(t, "--cleanup").wait()
	qt.Check(t, qt.IsFalse(strings.Contains(result.stdout, ofKilled)))
	if result.stdout == "" { // else another tracer was killed meanwhile
		qt.Check(t, qt.Equals(result.stderr, "usdttrace: --cleanup: no tracer has left anything\n"))
	}
	qt.Check(t, qt.IsTrue(has(ofRunning)))
	running.interrupt().ok()
	qt.Check(t, qt.IsFalse(has(ofRunning)))
}

// A user who has to wait for the kernel learns that, and how long.
func TestSaysHowLongDetachingTakes(t *testing.T) {
	testprog.Parallel(t)
	if !testprog.InPrivateMounts(t) {
		return
	}
	result := watchingByPerfEvents(t).interrupt()
	result.ok()
	qt.Check(t, qt.Matches(result.stderr, "(?s).*"+detachingTakes.String()+" .*"))
}

var detachingTakes = regexp.MustCompile(
	`usdttrace: detaching takes some ([1-9][0-9]*) s: this kernel closes [1-9][0-9]+ perf events`)

// watchingByPerfEvents starts usdttrace with a perf event for each of many
// sites.
func watchingByPerfEvents(t *testing.T) *running {
	t.Helper()
	for _, dir := range []string{testprog.Tracefs, "/sys/kernel/debug"} {
		qt.Assert(t, qt.IsNil(unix.Mount("none", dir, "tmpfs", 0, "")))
	}
	p := startTarget(t, "target-static")
	return watching(t, "--mode", "single-ip", p.path, "gousdt_test:[a-l]*", "gousdt_test:[n-r]*",
		"gousdt_test:[t-z]*")
}

// The second Ctrl-C gives back the shell at once, although the kernel goes on
// to detach.
func TestSecondSignalEndsItWhileItDetaches(t *testing.T) {
	if !testprog.InPrivateMounts(t) {
		return
	}
	t.Setenv(patientVariable, "1ms") // a fast kernel has detached in less than a second
	var result result
	var took time.Duration
	for range 10 {
		r := watchingByPerfEvents(t)
		qt.Assert(t, qt.IsNil(r.cmd.Process.Signal(syscall.SIGINT)))
		r.await(&r.stderr, "perf events one after the other")
		began := time.Now()
		for r.runs() {
			_ = r.cmd.Process.Signal(syscall.SIGINT) // it may end this moment
			time.Sleep(10 * time.Millisecond)
		}
		took, result = time.Since(began), r.wait()
		if r.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal() == syscall.SIGINT {
			break
		}
		// A busy machine may have detached before it takes the second signal.
		qt.Assert(t, qt.Equals(result.status, 128+int(syscall.SIGINT)))
	}
	qt.Assert(t, qt.Equals(result.status, -1), qt.Commentf("each time it had detached"))
	found := detachingTakes.FindStringSubmatch(result.stderr)
	qt.Assert(t, qt.IsNotNil(found), qt.Commentf("%s", result.stderr))
	seconds, err := strconv.Atoi(found[1])
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.IsTrue(took < testneeds.Patience(time.Duration(seconds)*time.Second/2)),
		qt.Commentf("%v of %d s", took, seconds))
	t.Logf("ended after %v, detaching takes %d s", took, seconds)
}
