// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
)

// Expected losses are never reported, not even for a moment: readers take a
// counter that goes back for one that has begun anew.
func TestLossesNeverBecomeLess(t *testing.T) {
	var l expectedLosses
	var counted uint64
	count := func() (uint64, error) { return counted, nil }
	counted = 3
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	l.change(1, count)
	counted += 5
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	l.change(1, count) // another one at the same time
	counted += 2
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	l.change(-1, count)
	l.change(-1, count)
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	counted += 4
	qt.Check(t, qt.Equals(l.lost(counted), 7))
	qt.Check(t, qt.Equals(l.lost(counted-1), 7)) // read before, asked about later
}

// A file system that makes an attachment wait does not hide losses.
func TestLossesWhileAnAttachmentWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l expectedLosses
		var counted uint64
		count := func() (uint64, error) { return counted, nil }
		l.change(1, count)
		counted += 5
		time.Sleep(longestChange - time.Second)
		qt.Check(t, qt.Equals(l.lost(counted), 0))
		time.Sleep(time.Second)
		qt.Check(t, qt.Equals(l.lost(counted), 5))
		l.change(-1, count)
		counted++
		qt.Check(t, qt.Equals(l.lost(counted), 6))
	})
}
