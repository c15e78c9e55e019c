// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// mountOverlay mounts two directories over each other, where no process has it
// in its mount namespace, and returns the path. Who has mounted it is not known
// then, as of the mounts of rootless containers.
func mountOverlay(t *testing.T, upper, lower string) string {
	t.Helper()
	fs, err := unix.Fsopen("overlay", unix.FSOPEN_CLOEXEC)
	if errors.Is(err, unix.ENODEV) {
		testneeds.Missing(t, "needs overlayfs in the kernel: %v", err)
	}
	qt.Assert(t, qt.IsNil(err))
	defer unix.Close(fs)
	qt.Assert(t, qt.IsNil(unix.FsconfigSetString(fs, "lowerdir", upper+":"+lower)))
	qt.Assert(t, qt.IsNil(unix.FsconfigCreate(fs)))
	mount, err := unix.Fsmount(fs, unix.FSMOUNT_CLOEXEC, 0)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { unix.Close(mount) })
	return fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), mount)
}

// Two mounts of overlayfs have the same file, as two containers have that are
// of one image. A breakpoint in it is one for both.
func TestFileOfTwoMountsIsSeenOnce(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		path := copyOf(t, "target-static")
		var processes []*testprog.Process
		pids := make(map[int]bool)
		for range 2 {
			mounted := mountOverlay(t, filepath.Dir(path), t.TempDir())
			p := testprog.Start(t, filepath.Join(mounted, filepath.Base(path)))
			processes = append(processes, p)
			pids[p.PID] = true
		}
		by := trace.NewAggregator(trace.Aggregation{By: []string{"pid"}})
		s := newSession(t, &trace.SessionOptions{
			Mode: mode, NoEvents: true, Aggregators: []*trace.Aggregator{by},
		})
		w := watch(t, s, &trace.WatchOptions{Proc: proc.WatcherOptions{
			Filter: func(p proc.Process) bool { return pids[p.PID] },
		}}, "gousdt_test:three")
		qt.Assert(t, qt.IsNil(w.SyncAll()))
		for i, p := range processes {
			p.Fire("three", 3+i)
		}
		qt.Check(t, qt.DeepEquals(rows(snapshot(t, by)), []string{
			fmt.Sprintf("[%d] 4 ?", processes[1].PID), fmt.Sprintf("[%d] 3 ?", processes[0].PID),
		}))
	})
}
