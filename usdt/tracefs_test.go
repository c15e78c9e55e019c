// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// withoutEventSource marks a test process whose mount namespace hides the
// kernel's event sources.
const withoutEventSource = "GOUSDT_TEST_WITHOUT_EVENT_SOURCE"

// Where uprobes are no perf events of their own, they are made through tracefs.
// This kernel has them, so a private mount namespace hides it.
func TestAttachThroughTracefs(t *testing.T) {
	testprog.RequireBPF(t)
	testneeds.Root(t)
	if os.Getenv(withoutEventSource) == "" {
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		cmd := exec.Command(self, "-test.run=^TestAttachThroughTracefs$", "-test.v")
		cmd.Env = append(os.Environ(), withoutEventSource+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(strings.Contains(string(out), "--- PASS: TestAttachThroughTracefs")))
		return
	}

	qt.Assert(t, qt.IsNil(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")))
	qt.Assert(t, qt.IsNil(unix.Mount("none", "/sys/bus/event_source/devices", "tmpfs", 0, "")))
	if err := unix.Mount("none", "/sys/kernel/tracing", "tracefs", 0, ""); err != nil {
		qt.Assert(t, qt.ErrorIs(err, unix.EBUSY)) // mounted already
	}

	kernel, err := usdt.KernelFeatures()
	qt.Assert(t, qt.IsNil(err))
	_, err = os.Stat("/sys/bus/event_source/devices/uprobe/type")
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))

	process := testprog.Start(t, "target-pie")
	target := usdt.Target{Path: testprog.Path(t, "target-pie"), PID: process.PID}
	for _, mode := range []usdt.Mode{usdt.ModeSingle, usdt.ModeSingleIPMap} {
		if kernel.Supports(mode) != nil {
			continue
		}
		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		lnk := c.attach(t, c.Collect, target, "three", &usdt.AttachOptions{Cookie: 5})
		process.Fire("three", 1)
		qt.Assert(t, qt.Equals(c.next(t, 1)[0].Cookie, 5))
		qt.Assert(t, qt.IsNil(lnk.Close()))
		process.Fire("three", 1)
		c.silent(t)

		// Nobody could count the semaphore.
		_, err = c.Attach(c.Collect, target, nil, elfnote.Exact(provider, "guarded"))
		qt.Assert(t, qt.ErrorAs(err, new(*usdt.UnsupportedError)))
		qt.Assert(t, qt.ErrorMatches(err, `.*probe gousdt_test:guarded at 0x[0-9a-f]+: the kernel has no counting of semaphores .*`))
		qt.Assert(t, qt.Equals(process.Semaphore("guarded"), 0))
	}
}
