// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testprog"
)

// A process that does not answer is left out, and the others are listed.
func TestAllGoesOnWithoutProcessesThatBlock(t *testing.T) {
	root, lib := t.TempDir(), filepath.Join(t.TempDir(), "lib.so")
	testprog.WriteNotes(t, lib, []testprog.Note{{Provider: "p", Name: "n"}})
	write := func(pid int, name, text string) {
		t.Helper()
		path := filepath.Join(root, fmt.Sprint(pid), name)
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
		qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
	}
	for pid := 1; pid <= 4; pid++ {
		write(pid, "stat",
			fmt.Sprintf("%d (program) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 %d 4096 1 0 1 0 1 0 0\n", pid, pid))
		write(pid, "cgroup", "0::/hostile\n")
		maps := filepath.Join(root, fmt.Sprint(pid), "maps")
		if pid < 4 {
			qt.Assert(t, qt.IsNil(unix.Mkfifo(maps, 0o600)))
			pipe, err := os.OpenFile(maps, os.O_RDWR, 0)
			qt.Assert(t, qt.IsNil(err))
			t.Cleanup(func() { pipe.Close() })
			continue
		}
		write(pid, "cgroup", "0::/ordinary\n")
		write(pid, "maps", "00001000-00002000 r-xp 00000000 08:01 1 "+lib+"\n")
		link := filepath.Join(root, fmt.Sprint(pid), "map_files/1000-2000")
		qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Dir(link), 0o755)))
		qt.Assert(t, qt.IsNil(os.Symlink(lib, link)))
	}
	var out, errs strings.Builder
	l := &lister{options: &options{allProcesses: true, format: formatTable}, proc: procfs.FS(root),
		out: bufio.NewWriter(&out), Messages: commandline.NewMessages("usdtlist", &errs)}
	found, failed, where := l.listProcesses()
	qt.Check(t, qt.Equals(found, 1))
	qt.Check(t, qt.IsFalse(failed))
	qt.Check(t, qt.Equals(where, "the files of any process"))
	qt.Assert(t, qt.IsNil(l.out.Flush()))
	qt.Check(t, qt.Equals(firstLine(out.String()), "File: "+lib))
	qt.Check(t, qt.Equals(strings.Count(errs.String(), "left out: process "), 3),
		qt.Commentf("%s", errs.String()))
}
