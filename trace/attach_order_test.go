// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

// A file system that makes an attachment wait does not hide losses.
func TestLossesWhileAnAttachmentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l expectedLosses
		l.begin(3)
		l.begin(4) // another goroutine closes it, too
		time.Sleep(longestChange - time.Second)
		qt.Check(t, qt.Equals(l.lost(8), 3))
		time.Sleep(time.Second)
		qt.Check(t, qt.Equals(l.lost(8), 8))
		l.end(8)
		qt.Check(t, qt.Equals(l.lost(9), 9))
		l.begin(9)
		qt.Check(t, qt.Equals(l.lost(11), 9))
		l.end(12)
		qt.Check(t, qt.Equals(l.lost(14), 11))
	})
}
