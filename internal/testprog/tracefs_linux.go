// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/uprobeevent"
)

// Tracefs is where [InPrivateMounts] mounts tracefs.
const Tracefs = "/sys/kernel/tracing"

// InPrivateMounts runs a test again as a process with its own mount namespace,
// in which tracefs is mounted, and reports whether this is that process. A test
// begins with
//
//	if !testprog.InPrivateMounts(t) {
//		return
//	}
func InPrivateMounts(t *testing.T) bool {
	t.Helper()
	RequireBPF(t)
	testneeds.Root(t)
	const variable = "GOUSDT_TEST_PRIVATE_MOUNTS"
	if os.Getenv(variable) == "" {
		self, err := os.Executable()
		qt.Assert(t, qt.IsNil(err))
		cmd := exec.Command(self, "-test.run=^"+t.Name()+"$", "-test.v")
		cmd.Env = append(os.Environ(), variable+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(strings.Contains(string(out), "--- PASS: "+t.Name())))
		return false
	}
	qt.Assert(t, qt.IsNil(unix.Mount("none", "/", "", unix.MS_REC|unix.MS_PRIVATE, "")))
	if err := unix.Mount("none", Tracefs, "tracefs", 0, ""); err != nil {
		qt.Assert(t, qt.ErrorIs(err, unix.EBUSY)) // mounted already
	}
	return true
}

// SharedEvents returns the events in tracefs that sites share, and the places
// of each. It needs [InPrivateMounts].
func SharedEvents(t *testing.T) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(Tracefs, "uprobe_events"))
	qt.Assert(t, qt.IsNil(err))
	events := make(map[string][]string)
	for line := range strings.Lines(string(text)) {
		name, place, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		if name, ok := strings.CutPrefix(name, "p:"+uprobeevent.Group+"/"); ok {
			events[name] = append(events[name], place)
		}
	}
	return events
}
