// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"
)

// Changes that the kernel did not report, because there were too many, are
// found all the same.
func TestScanAfterTooManyChanges(t *testing.T) {
	// Any tree of directories will do.
	root := t.TempDir()
	mkdir := func(name string) uint64 {
		t.Helper()
		dir := filepath.Join(root, name)
		qt.Assert(t, qt.IsNil(os.Mkdir(dir, 0o755)))
		id, err := inode(dir)
		qt.Assert(t, qt.IsNil(err))
		return id
	}
	removed, stays := mkdir("removed"), mkdir("stays")
	c, err := WatchCgroups(root)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsNil(c.Close())) // it gets no events from now on

	qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(root, "removed"))))
	made := mkdir("made")
	c.changed(0, unix.IN_Q_OVERFLOW, "")
	qt.Check(t,
		qt.DeepEquals(c.ids, map[string]uint64{"/": c.ids["/"], "/stays": stays, "/made": made}))
	// The last events of the removed cgroup are still to be read.
	path, ok := c.Path(removed)
	if removed != made { // a file system may give a number again
		qt.Check(t, qt.IsTrue(ok))
		qt.Check(t, qt.Equals(path, "/removed"))
		qt.Check(t, qt.IsFalse(c.Exists(removed)))
	}
	qt.Check(t, qt.IsTrue(c.Exists(stays)))
	qt.Check(t, qt.IsTrue(c.Exists(made)))

	// They are forgotten although no other cgroup is removed.
	for i := range c.gone {
		c.gone[i].since = time.Now().Add(-2 * grace)
	}
	_, ok = c.Path(removed)
	qt.Check(t, qt.Equals(ok, removed == made))
}

// A directory that could not be watched does not keep those in it for ever.
func TestScanFindsWhatTheKernelDoesNotReport(t *testing.T) {
	root := t.TempDir()
	removed := filepath.Join(root, "unwatched", "removed")
	qt.Assert(t, qt.IsNil(os.MkdirAll(removed, 0o755)))
	c, err := WatchCgroups(root)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	raw, err := c.inotify.SyscallConn()
	qt.Assert(t, qt.IsNil(err))
	c.mu.Lock()
	for watch := range c.watched {
		qt.Check(t, qt.IsNil(raw.Control(func(fd uintptr) {
			_, err = unix.InotifyRmWatch(int(fd), uint32(watch))
		})))
		qt.Check(t, qt.IsNil(err))
	}
	c.mu.Unlock()
	qt.Assert(t, qt.IsNil(os.Remove(removed)))
	_, ok := c.Path(0) // not known
	qt.Check(t, qt.IsFalse(ok))
	_, err = c.IDs("/unwatched/removed")
	qt.Check(t, qt.ErrorMatches(err, `there is no container "/unwatched/removed" now`))
	qt.Check(t, qt.HasLen(c.gone, 1))
}

// A user that makes very many cgroups, so that not all IDs are known, does not
// take the time of those that ask for others.
func TestScansForUnknownIDsTakeLittleTime(t *testing.T) {
	root := t.TempDir()
	for i := range 5000 {
		qt.Assert(t, qt.IsNil(os.Mkdir(filepath.Join(root, strconv.Itoa(i)), 0o755)))
	}
	c, err := WatchCgroups(root)
	qt.Assert(t, qt.IsNil(err))
	defer c.Close()
	began := time.Now()
	c.Path(0)
	took, next := time.Since(began), c.nextScan
	qt.Check(t, qt.IsTrue(next.Sub(began) > max(scanAgain, 2*took)),
		qt.Commentf("one of %v, the next after %v", took, next.Sub(began)))
	c.Path(0) // which is too early for another scan
	qt.Check(t, qt.Equals(c.nextScan, next))
}
