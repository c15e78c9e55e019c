// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// startContained runs a copy of target-static as /bin/target in mount, PID and
// root directories of its own.
func startContained(t *testing.T) (process *testprog.Process, file string) {
	t.Helper()
	testneeds.Root(t)
	root := t.TempDir()
	qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(root, "bin"), 0o755)))
	file = filepath.Join(root, "bin", "target")
	copyFile(t, file, testprog.Path(t, "target-static"))
	cmd := exec.Command("/bin/target")
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root,
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	return testprog.StartCommand(t, cmd), file
}

func TestWatchTellsContainersWithEqualPathsApart(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		one, _ := startContained(t)
		two, fileOfTwo := startContained(t)

		c := newCollector(t, &usdt.ManagerOptions{Mode: mode})
		// The path is the same in both; the PID says whose it is.
		first := c.attach(t, c.Collect, usdt.Target{Path: "/bin/target", PID: one.PID},
			"three", nil)
		two.Fire("three", 1)
		c.silent(t)
		one.Fire("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), one.PID))
		qt.Assert(t, qt.IsNil(first.Close()))

		var attached []*watchAttachment
		w, err := c.Watch(&watch.Options{
			Linger: -1,
			Filter: func(p proc.Process) bool {
				return p.PID == one.PID || p.PID == two.PID
			},
		}, func(changes *watch.Changes[*watchAttachment]) {
			attached = append(attached, changes.Attached...)
		}, watching(t, c.Collect, "gousdt_test:three")...)
		qt.Assert(t, qt.IsNil(err))
		defer w.Close()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.HasLen(attached, 2)) // one for each file
		for _, a := range attached {
			qt.Check(t, qt.Equals(a.Path, "/bin/target"))
		}

		// A container whose image is gone goes on.
		qt.Assert(t, qt.IsNil(os.Remove(fileOfTwo)))
		for _, p := range []*testprog.Process{one, two} {
			p.Fire("three", 1)
			qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), p.PID))
			c.silent(t)
		}
		one.Kill()
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Assert(t, qt.HasLen(w.Attachments(), 1))
		two.Fire("three", 1)
		qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), two.PID))
	})
}

// A program that never had a path, like the libraries of probes that are made
// at run time.
func TestWatchAttachesToProgramsInMemoryFiles(t *testing.T) {
	testprog.RequireBPF(t)
	fd, err := unix.MemfdCreate("target", 0)
	qt.Assert(t, qt.IsNil(err))
	memory := os.NewFile(uintptr(fd), "target")
	defer memory.Close()
	source, err := os.Open(testprog.Path(t, "target-static"))
	qt.Assert(t, qt.IsNil(err))
	defer source.Close()
	_, err = io.Copy(memory, source)
	qt.Assert(t, qt.IsNil(err))
	process := testprog.StartCommand(t,
		exec.Command(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), fd)))

	elf, err := elfnote.NewFile(memory)
	qt.Assert(t, qt.IsNil(err))
	c := newCollector(t, nil)
	lnk := c.attach(t, c.Collect, usdt.Target{ELF: elf, PID: process.PID}, "three", nil)
	process.Fire("three", 1)
	qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
	qt.Assert(t, qt.IsNil(lnk.Close()))

	w, err := c.Watch(&watch.Options{
		Filter: func(p proc.Process) bool {
			return p.PID == process.PID
		},
	}, nil, watching(t, c.Collect, "gousdt_test:three")...)
	qt.Assert(t, qt.IsNil(err))
	defer w.Close()
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), process.PID)))
	qt.Assert(t, qt.HasLen(w.Attachments(), 1))
	qt.Assert(t, qt.Equals(w.Attachments()[0].Link.Selection().Name(), "/memfd:target"))
	process.Fire("three", 1)
	qt.Assert(t, qt.Equals(int(c.next(t, 1)[0].Pid), process.PID))
}
