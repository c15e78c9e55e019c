// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
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
	after, err := procfs.IdentifyFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(after.FileID, id), qt.Commentf("deleted"))

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

func openFile(t *testing.T, path string) *os.File {
	t.Helper()
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { file.Close() })
	return file
}

func contentsOf(t *testing.T, path string) procfs.Contents {
	t.Helper()
	found, err := procfs.IdentifyFile(openFile(t, path))
	qt.Assert(t, qt.IsNil(err))
	return found.Contents
}

func TestIdentityTellsAFileFromTheNextOneOfItsInode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	modified := unix.NsecToTimespec(1e18)
	var last procfs.FileID
	var inode uint64
	reused := false
	for range 20 { // file systems give out a free number soon, but not all at once
		noProbes.write(t, path)
		qt.Assert(t,
			qt.IsNil(unix.UtimesNanoAt(unix.AT_FDCWD, path,
				[]unix.Timespec{modified, modified}, 0)))
		id := identityOf(t, path)
		qt.Assert(t, qt.Not(qt.Equals(id, last)))
		reused = reused || inodeOf(t, path) == inode
		inode = inodeOf(t, path)
		last = id
		qt.Assert(t, qt.IsNil(os.Remove(path)))
	}
	if !reused {
		t.Log("the file system did not use an inode number twice")
	}
}

// Files are told apart while a uprobe of an earlier question goes, and those of
// one inode are found whatever places are taken.
func TestInodesAreToldApart(t *testing.T) {
	dir := t.TempDir()
	path := noProbes.write(t, dir, "file")
	file, same, other := openFile(t, path), openFile(t, path), openFile(t, noProbes.write(t, dir, "other"))
	type place struct {
		inode, at uint64
	}
	for taken := range placesInHeader - placesToAsk + 1 {
		for goes := range 8 { // after this many calls
			calls, semaphores := 0, make(map[place]uint32)
			for at := range uint64(taken) {
				semaphores[place{inodeOf(t, path), at}] = 1
			}
			for at := range uint64(placesInHeader) {
				semaphores[place{inodeOf(t, other.Name()), at}] = 2
			}
			found := firstSame(file, []*os.File{other, same},
				func(file *os.File, at uint64, semaphore uint32) error {
					if calls++; calls == goes {
						delete(semaphores, place{inodeOf(t, other.Name()), at})
					}
					here := place{inodeOf(t, file.Name()), at}
					if was, ok := semaphores[here]; ok && was != semaphore {
						return unix.EINVAL
					}
					semaphores[here] = semaphore
					return nil
				})
			qt.Assert(t, qt.Equals(found, 1), qt.Commentf("%d taken, one goes after %d calls", taken, goes))
		}
	}
}
