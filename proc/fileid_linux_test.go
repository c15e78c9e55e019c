// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

func TestIdentityTellsFilesApart(t *testing.T) {
	dir := t.TempDir()
	needBirthTime(t, dir)
	lib := noProbes.write(t, dir, "lib.so")
	id := identityOf(t, lib)
	qt.Check(t, qt.Equals(identityOf(t, lib), id))

	qt.Assert(t, qt.IsNil(os.Link(lib, filepath.Join(dir, "link.so"))))
	qt.Assert(t, qt.IsNil(os.Chmod(lib, 0o700)))
	qt.Check(t, qt.Equals(identityOf(t, filepath.Join(dir, "link.so")), id), qt.Commentf("another path and mode"))

	file, err := os.Open(lib)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	after, err := IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(after, id), qt.Commentf("deleted"))

	qt.Check(t, qt.Not(qt.Equals(identityOf(t, noProbes.write(t, dir, "copy.so")), id)), qt.Commentf("a copy"))
	link := filepath.Join(dir, "link.so")
	// Time stamps can be as coarse as a clock tick: the size differs for
	// certain.
	qt.Assert(t, qt.IsNil(os.WriteFile(link, append(noProbes.bytes(), 0), 0o755)))
	qt.Check(t, qt.Not(qt.Equals(identityOf(t, link), id)), qt.Commentf("other contents"))
}

func TestIdentityTellsAFileFromTheNextOneOfItsInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	modified := unix.NsecToTimespec(1e18)
	var last FileID
	reused := false
	for range 20 { // file systems give out a free number soon, but not all at once
		noProbes.write(t, path)
		qt.Assert(t, qt.IsNil(unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{modified, modified}, 0)))
		id := identityOf(t, path)
		qt.Assert(t, qt.Not(qt.Equals(id, last)))
		reused = reused || id.inode == last.inode
		last = id
		qt.Assert(t, qt.IsNil(os.Remove(path)))
	}
	if !reused {
		t.Log("the file system did not use an inode number twice")
	}
}

func TestIdentityString(t *testing.T) {
	qt.Check(t, qt.Equals(fmt.Sprint(FileID{device: 0xfe<<32 | 1, inode: 5, size: 9}), "fe:01 inode 5, 9 bytes"))
	qt.Check(t, qt.Equals(fmt.Sprint(FileID{overlay: true, inode: 5, size: 9}), "overlay inode 5, 9 bytes"))
}
