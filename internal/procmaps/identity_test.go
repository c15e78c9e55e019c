// SPDX-License-Identifier: BSD-2-Clause

package procmaps

import (
	"testing"

	"github.com/go-quicktest/qt"
)

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
