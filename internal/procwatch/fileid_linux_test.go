// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

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
	qt.Check(t, qt.Equals(identityOf(t, filepath.Join(dir, "link.so")), id),
		qt.Commentf("another path and mode"))

	file, err := os.Open(lib)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	qt.Assert(t, qt.IsNil(os.Remove(lib)))
	after, err := IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(after, id), qt.Commentf("deleted"))

	qt.Check(t, qt.Not(qt.Equals(identityOf(t, noProbes.write(t, dir, "copy.so")), id)),
		qt.Commentf("a copy"))
	link := filepath.Join(dir, "link.so")
	qt.Assert(t, qt.IsNil(os.Chtimes(link, time.Time{}, time.Unix(1e9, 0))))
	qt.Check(t, qt.Equals(identityOf(t, link), id), qt.Commentf("touched"))
	before := contentsOf(t, link)
	qt.Assert(t, qt.IsNil(os.WriteFile(link, append(noProbes.bytes(), 0), 0o755)))
	qt.Check(t, qt.Equals(identityOf(t, link), id), qt.Commentf("written to"))
	qt.Check(t, qt.Not(qt.Equals(contentsOf(t, link), before)))
}

func contentsOf(t *testing.T, path string) contents {
	t.Helper()
	found, err := identify(0, path)
	qt.Assert(t, qt.IsNil(err))
	return found.contents
}

func TestIdentityTellsAFileFromTheNextOneOfItsInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	modified := unix.NsecToTimespec(1e18)
	var last FileID
	reused := false
	for range 20 { // file systems give out a free number soon, but not all at once
		noProbes.write(t, path)
		qt.Assert(t,
			qt.IsNil(unix.UtimesNanoAt(unix.AT_FDCWD, path,
				[]unix.Timespec{modified, modified}, 0)))
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

// A file never passes for one of another device, whatever its file system
// reports.
func TestFilesOfOverlayfsAreMergedByTheirBirth(t *testing.T) {
	id := FileID{device: 1, inode: 5, born: 7, overlay: true}
	other := FileID{device: 2, inode: 5, born: 7, overlay: true}
	qt.Check(t, qt.Not(qt.Equals(id, other)))
	qt.Check(t, qt.IsTrue(id.MayBe(other)))
	one, ok := id.merged()
	qt.Check(t, qt.IsTrue(ok))
	two, _ := other.merged()
	qt.Check(t, qt.Equals(one, two))
	_, ok = FileID{device: 1, inode: 5, overlay: true}.merged()
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without a time of birth"))
	_, ok = FileID{device: 1, inode: 5, born: 7}.merged()
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without overlayfs"))
	qt.Check(t,
		qt.IsFalse(FileID{device: 1, inode: 5,
			born: 7}.MayBe(FileID{device: 2, inode: 5, born: 7})))
}
