// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

const inTimeNamespace = "GOUSDT_TEST_IN_TIME_NAMESPACE"

// The test runs itself in a namespace whose clocks are far ahead.
func TestTimeNamespace(t *testing.T) {
	testprog.RequireBPF(t)
	if birth := os.Getenv(inTimeNamespace); birth != "" {
		testInTimeNamespace(t, birth)
		return
	}
	unshare := testneeds.Tool(t, "unshare", "util-linux")
	namespace := []string{"--time", "--monotonic", "90000000", "--boottime", "180000000", "--fork",
		"--kill-child"}
	if out, err := exec.Command(unshare,
		append(namespace, "true")...).CombinedOutput(); err != nil {
		testneeds.Missing(t, "needs to make time namespaces: %v: %s", err, out)
	}
	cmd := exec.Command(unshare,
		append(namespace, os.Args[0], "-test.run=^"+t.Name()+"$", "-test.v")...)
	cmd.Env = append(os.Environ(), inTimeNamespace+"="+decimal(trace.ThreadBirth()))
	out, err := cmd.CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", out))
	qt.Check(t, qt.StringContains(string(out), "--- PASS: "+t.Name()))
}

func testInTimeNamespace(t *testing.T, birth string) {
	var own unix.Timespec
	qt.Assert(t, qt.IsNil(unix.ClockGettime(unix.CLOCK_MONOTONIC, &own)))
	qt.Assert(t, qt.IsTrue(own.Sec > 90_000_000))
	qt.Check(t, qt.Equals(decimal(trace.ThreadBirth()), birth))
	process := start(t, "target-pie")
	session := open(t, process, "three", nil)
	const rounding = time.Second // between clocks that are read one after the other
	before := time.Now().Add(-rounding)
	process.Fire("three", 1)
	event := next(t, session, 1)[0]
	qt.Check(t, qt.IsTrue(event.Time.After(before)),
		qt.Commentf("%v, after %v", event.Time, before))
	qt.Check(t, qt.IsFalse(event.Time.After(time.Now().Add(rounding))),
		qt.Commentf("%v", event.Time))
}
