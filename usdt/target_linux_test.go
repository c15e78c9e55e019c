// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A bare name that no process has mapped means the file that the process itself
// would load.
func TestSelectByABareName(t *testing.T) {
	testneeds.Root(t)
	root := t.TempDir()
	copyFile(t, filepath.Join(root, "program"), testprog.Path(t, "target-static"))
	copyFile(t, filepath.Join(root, "libtwin.so"), testprog.Path(t, "libtarget.so"))
	cmd := exec.Command("/program")
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	process := testprog.StartCommand(t, cmd)

	t.Run("finds the file that the process has mapped", func(t *testing.T) {
		sel, err := usdt.Select(usdt.Target{Path: "program", PID: process.PID},
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { sel.Close() })
		qt.Check(t, qt.Equals(sel.Name(), "/program"))
		qt.Check(t, qt.Equals(sel.PID(), process.PID))
		qt.Check(t, qt.Equals(len(sel.Sites()), 1))
		info, err := elffile.OSFile(sel.File()).Stat()
		qt.Assert(t, qt.IsNil(err))
		want, err := os.Stat(filepath.Join(root, "program"))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(os.SameFile(info, want)))
	})

	t.Run("says how to name another one", func(t *testing.T) {
		_, err := usdt.Select(usdt.Target{Path: "libtwin.so", PID: process.PID},
			elfnote.Exact(provider, "three"))
		qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
		qt.Check(t, qt.ErrorMatches(err, `libtwin.so: file does not exist: process \d+ maps no file of that name \(give its path as the process sees it\)`))
	})
}
