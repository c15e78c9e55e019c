// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/procfs"
)

// A file never passes for one of another device, whatever its file system
// reports.
func TestFilesOfOverlayfsAreMergedByTheirBirth(t *testing.T) {
	id := procfs.FileID{Device: 1, Inode: 5, Born: 7, Overlay: true}
	other := procfs.FileID{Device: 2, Inode: 5, Born: 7, Overlay: true}
	qt.Check(t, qt.Not(qt.Equals(id, other)))
	qt.Check(t, qt.IsTrue(id.MayBe(other)))
	one, ok := merged(id)
	qt.Check(t, qt.IsTrue(ok))
	two, _ := merged(other)
	qt.Check(t, qt.Equals(one, two))
	_, ok = merged(procfs.FileID{Device: 1, Inode: 5, Overlay: true})
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without a time of birth"))
	_, ok = merged(procfs.FileID{Device: 1, Inode: 5, Born: 7})
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without overlayfs"))
	qt.Check(t,
		qt.IsFalse(procfs.FileID{Device: 1, Inode: 5,
			Born: 7}.MayBe(procfs.FileID{Device: 2, Inode: 5, Born: 7})))
}
