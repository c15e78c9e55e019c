// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

func inodeOf(t testing.TB, path string) uint64 {
	t.Helper()
	info, err := os.Stat(path)
	qt.Assert(t, qt.IsNil(err))
	return info.Sys().(*syscall.Stat_t).Ino
}

func identityOf(t testing.TB, path string) procfs.FileID {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	id, err := procfs.IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	return id.FileID
}

// theFile returns the one file of a process of a fixture.
func theFile(t testing.TB, f *fixture, pid int) *procfs.MappedFile {
	t.Helper()
	files, err := procfs.Files(f.fs(), pid)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(files, 1))
	return files[0]
}

func TestOpenThroughMapFiles(t *testing.T) {
	f := newFixture(t)
	lib := noProbes.write(t, t.TempDir(), "lib.so")
	m := code(0x1000, lib)
	m.path = "/somewhere/else.so (deleted)" // which does not matter
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{m}})

	file := theFile(t, f, 7)
	qt.Check(t, qt.Equals(file.OpenedPath, ""))
	id, err := new(Mounts).ID(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(id, identityOf(t, lib)))
	qt.Check(t, qt.Equals(file.OpenedPath, f.root+"/7/map_files/1000-2000"))

	opened, err := file.Open()
	qt.Assert(t, qt.IsNil(err))
	defer opened.Close()
	qt.Check(t, qt.Equals(opened.Name(), file.OpenedPath))
	content, err := io.ReadAll(opened)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.DeepEquals(content, noProbes.bytes()))
}

func TestOpenThroughTheSecondMappingIfTheFirstIsGone(t *testing.T) {
	f := newFixture(t)
	lib := noProbes.write(t, t.TempDir(), "lib.so")
	first, second := code(0x1000, lib), code(0x3000, lib)
	first.file = ""
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{first, second}})
	file := theFile(t, f, 7)
	_, err := new(Mounts).ID(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(file.OpenedPath, f.root+"/7/map_files/3000-4000"))
}

// byPath has a process with a root directory of its own and one mapping, which
// cannot be opened by map_files.
func byPath(t *testing.T, path string, inode uint64) (*fixture, string) {
	f := newFixture(t)
	jail := t.TempDir()
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{
		{start: 0x1000, end: 0x2000, permissions: "r-xp", major: 8, inode: inode, path: path},
	}})
	f.link(7, "root", jail)
	return f, jail
}

func TestOpenByPathBelowTheRootOfTheProcess(t *testing.T) {
	for _, path := range []string{"/lib/a.so", "/lib/a b.so", "/lib/a\nb.so", "/lib/a.so (deleted)",
		"/lib/up/../a.so"} {
		t.Run(path, func(t *testing.T) {
			jail := t.TempDir()
			qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(jail, "lib/up"), 0o755)))
			lib := noProbes.write(t, jail, path)
			f := newFixture(t)
			f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{
				{start: 0x1000, end: 0x2000, permissions: "r-xp", major: 8, inode: inodeOf(t, lib),
					path: path},
			}})
			f.link(7, "root", jail)
			file := theFile(t, f, 7)
			opened, err := file.Open()
			qt.Assert(t, qt.IsNil(err))
			defer opened.Close()
			id, err := new(Mounts).ID(file)
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(id, identityOf(t, lib)))
			qt.Check(t, qt.Equals(file.OpenedPath, f.root+"/7/root"+path))
		})
	}
}

func TestOpenByPathRefusesAnotherFile(t *testing.T) {
	before := openDescriptors(t)
	f, jail := byPath(t, "/lib/a.so", 1)
	lib := noProbes.write(t, jail, "lib/a.so")
	qt.Assert(t, qt.Not(qt.Equals(inodeOf(t, lib), 1)))
	_, err := theFile(t, f, 7).Open()
	// map_files works in the fixture, so that it is the mapping that is gone.
	qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
	_, err = new(Mounts).ID(theFile(t, f, 7))
	qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
	checkDescriptors(t, before)
}

func TestOpenByPathStaysBelowTheRoot(t *testing.T) {
	outside := noProbes.write(t, t.TempDir(), "secret.so")
	f, jail := byPath(t, "/lib/a.so", inodeOf(t, outside))
	qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(jail, "lib"), 0o755)))
	qt.Assert(t, qt.IsNil(os.Symlink(outside, filepath.Join(jail, "lib/a.so"))))
	_, err := theFile(t, f, 7).Open()
	qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
	_, err = procfs.OpenIn(f.fs(), 7, "/lib/a.so")
	qt.Check(t, qt.ErrorIs(err, os.ErrNotExist))
}

func TestOpenOfWhatHasNoPath(t *testing.T) {
	for _, path := range []string{"memfd:x", "anon_inode:[perf_event]"} {
		f, _ := byPath(t, path, 7)
		_, err := theFile(t, f, 7).Open()
		qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
	}
}

func TestOpenNeverOpensADevice(t *testing.T) {
	f := newFixture(t)
	fifo := filepath.Join(t.TempDir(), "fifo")
	qt.Assert(t, qt.IsNil(unix.Mkfifo(fifo, 0o600)))
	for i, path := range []string{"/dev/null", fifo, "/dev"} {
		f.put(fakeProcess{pid: 7 + i, size: 1, maps: []fakeMap{code(0x1000, path)}})
		_, err := theFile(t, f, 7+i).Open()
		qt.Check(t, qt.ErrorIs(err, procfs.ErrNotRegular), qt.Commentf(path))
		_, err = procfs.OpenIn(f.fs(), 7+i, path)
		qt.Check(t, qt.IsNotNil(err))
	}
}

func TestOpenNoticesThatTheFileWasReplacedMeanwhile(t *testing.T) {
	before := openDescriptors(t)
	f := newFixture(t)
	lib := noProbes.write(t, t.TempDir(), "lib.so")
	f.put(fakeProcess{pid: 7, size: 1, maps: []fakeMap{code(0x1000, lib)}})
	file := theFile(t, f, 7)
	_, err := new(Mounts).ID(file)
	qt.Assert(t, qt.IsNil(err))
	testELF{tag: 1}.write(t, lib+".new")
	qt.Assert(t, qt.IsNil(os.Rename(lib+".new", lib)))
	_, err = file.Open()
	qt.Check(t, qt.ErrorIs(err, procfs.ErrChanged))
	checkDescriptors(t, before)
}

// checkDescriptors asserts that there are no more than a number of open
// descriptors. Another goroutine closes files, and a caller does not wait long
// for it: those of a test before may have been among the number.
func checkDescriptors(t testing.TB, want int) {
	t.Helper()
	testneeds.Await(t, 10*time.Second, fmt.Sprintf("no more than %d descriptors", want), func() bool {
		return openDescriptors(t) <= want
	})
}

func openDescriptors(t testing.TB) int {
	t.Helper()
	entries, err := os.ReadDir("/proc/self/fd")
	qt.Assert(t, qt.IsNil(err))
	return len(entries)
}
