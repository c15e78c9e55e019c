// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// A file never passes for one of another device, whatever its file system
// reports.
func TestFilesOfOverlayfsAreMergedByTheirBirth(t *testing.T) {
	id := FileID{Device: 1, Inode: 5, Born: 7, Overlay: true}
	other := FileID{Device: 2, Inode: 5, Born: 7, Overlay: true}
	qt.Check(t, qt.Not(qt.Equals(id, other)))
	qt.Check(t, qt.IsTrue(id.MayBe(other)))
	one, ok := id.merged()
	qt.Check(t, qt.IsTrue(ok))
	two, _ := other.merged()
	qt.Check(t, qt.Equals(one, two))
	_, ok = FileID{Device: 1, Inode: 5, Overlay: true}.merged()
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without a time of birth"))
	_, ok = FileID{Device: 1, Inode: 5, Born: 7}.merged()
	qt.Check(t, qt.IsFalse(ok), qt.Commentf("without overlayfs"))
	qt.Check(t,
		qt.IsFalse(FileID{Device: 1, Inode: 5,
			Born: 7}.MayBe(FileID{Device: 2, Inode: 5, Born: 7})))
}
