// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

// fixture is a directory tree that looks like /proc.
type fixture struct {
	t    testing.TB
	root string
}

func newFixture(t testing.TB) *fixture { return &fixture{t: t, root: t.TempDir()} }

func (f *fixture) fs() procfs.FS { return procfs.FS(f.root) }

// fakeProcess is a process of a fixture, with the numbers that matter.
type fakeProcess struct {
	pid                          int
	command                      string
	state                        byte
	threads                      int
	startTime, size, faults, img uint64
	maps                         []fakeMap
}

// fakeMap is a line of maps and, if file is not "", where its link in map_files
// leads.
type fakeMap struct {
	start, end   uint64
	permissions  string
	offset       uint64
	major, minor uint32
	inode        uint64
	path         string
	file         string
}

// code is an executable mapping of a file that exists, at an address.
func code(start uint64, file string) fakeMap {
	return fakeMap{start: start, end: start + 0x1000, permissions: "r-xp", major: 8, minor: 1,
		inode: 1, path: file, file: file}
}

func (m fakeMap) line() string {
	s := fmt.Sprintf("%08x-%08x %s %08x %02x:%02x %d", m.start, m.end, m.permissions, m.offset,
		m.major, m.minor, m.inode)
	return fmt.Sprintf("%-72s %s\n", s, strings.ReplaceAll(m.path, "\n", `\012`))
}

// put writes a process, in place of the one of that PID.
func (f *fixture) put(p fakeProcess) {
	f.t.Helper()
	dir := filepath.Join(f.root, strconv.Itoa(p.pid))
	mapFiles := filepath.Join(dir, "map_files")
	qt.Assert(f.t, qt.IsNil(os.RemoveAll(mapFiles)))
	qt.Assert(f.t, qt.IsNil(os.MkdirAll(mapFiles, 0o755)))
	var maps strings.Builder
	for _, m := range p.maps {
		maps.WriteString(m.line())
		if m.file != "" {
			link := fmt.Sprintf("%x-%x", m.start, m.end)
			qt.Assert(f.t, qt.IsNil(os.Symlink(m.file, filepath.Join(mapFiles, link))))
		}
	}
	f.write(p.pid, "maps", maps.String())
	f.write(p.pid, "stat", p.stat())
}

func (p fakeProcess) stat() string {
	if p.state == 0 {
		p.state = 'S'
	}
	if p.command == "" {
		p.command = "program"
	}
	return fmt.Sprintf("%d (%s) %c 1 1 1 0 -1 4194304 %d 0 0 0 0 0 0 0 20 0 %d 0 %d %d 100 18446744073709551615 %d 0 %d 0 0\n",
		p.pid, p.command, p.state, p.faults, max(p.threads, 1), p.startTime, p.size, p.img, p.img)
}

func (f *fixture) write(pid int, name, text string) {
	f.t.Helper()
	path := filepath.Join(f.root, strconv.Itoa(pid), name)
	qt.Assert(f.t, qt.IsNil(os.MkdirAll(filepath.Dir(path), 0o755)))
	qt.Assert(f.t, qt.IsNil(os.WriteFile(path, []byte(text), 0o644)))
}

func (f *fixture) link(pid int, name, target string) {
	f.t.Helper()
	qt.Assert(f.t, qt.IsNil(os.Symlink(target, filepath.Join(f.root, strconv.Itoa(pid), name))))
}

func (f *fixture) remove(pid int) {
	f.t.Helper()
	qt.Assert(f.t, qt.IsNil(os.RemoveAll(filepath.Join(f.root, strconv.Itoa(pid)))))
}
