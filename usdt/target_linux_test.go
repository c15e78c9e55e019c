// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package usdt_test

import (
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/usdt"
)

// A bare name that no process has mapped means the file that the process itself
// would load.
func TestSelectByABareName(t *testing.T) {
	testneeds.Root(t)
	find := func(t *testing.T, pid int) *usdt.Selection {
		t.Helper()
		sel, err := usdt.Select(usdt.Target{Path: "libtwin.so", PID: pid}, nil,
			elfnote.Exact(provider, "three"))
		qt.Assert(t, qt.IsNil(err))
		t.Cleanup(func() { sel.Close() })
		return sel
	}

	t.Run("finds the library for the machine of the process", func(t *testing.T) {
		testneeds.Only(t, "no other kernel here runs programs of 32 bits", "amd64")
		dir64, dir32 := t.TempDir(), t.TempDir()
		copyFile(t, filepath.Join(dir64, "libtwin.so"), testprog.Path(t, "libtarget.so"))
		copyFile(t, filepath.Join(dir32, "libtwin.so"),
			testprog.CrossPath(t, "386", "libtarget.so"))
		for program, want := range map[string]elf.Machine{
			testprog.Path(t, "target-static"):             elf.EM_X86_64,
			testprog.CrossPath(t, "386", "target-static"): elf.EM_386,
		} {
			for _, path := range []string{dir64 + ":" + dir32, dir32 + ":" + dir64} {
				cmd := exec.Command(program)
				cmd.Env = []string{"LD_LIBRARY_PATH=" + path}
				process := testprog.StartCommand(t, cmd)
				qt.Check(t, qt.Equals(find(t, process.PID).File().Header().Machine, want))
			}
		}
	})

	t.Run("finds the library under the root of the process", func(t *testing.T) {
		root := t.TempDir()
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(root, "twins"), 0o755)))
		copyFile(t, filepath.Join(root, "twins", "libtwin.so"), testprog.Path(t, "libtarget.so"))
		copyFile(t, filepath.Join(root, "program"), testprog.Path(t, "target-static"))
		cmd := exec.Command("/program")
		cmd.Env = []string{"LD_LIBRARY_PATH=/twins"}
		cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
		process := testprog.StartCommand(t, cmd)
		sel := find(t, process.PID)
		qt.Check(t, qt.Matches(sel.String(), `/twins/libtwin\.so in process \d+: 1 site`))
		info, err := sel.File().OSFile().Stat()
		qt.Assert(t, qt.IsNil(err))
		want, err := os.Stat(filepath.Join(root, "twins", "libtwin.so"))
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.IsTrue(os.SameFile(info, want)))
	})
}
