// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"
)

// What is expected is never told of as lost, not even for a moment: a counter
// that goes back is taken for one that has begun anew.
func TestLossesNeverBecomeLess(t *testing.T) {
	var l expectedLosses
	var counted uint64
	count := func() (uint64, error) { return counted, nil }
	counted = 3
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	err := l.during(count, func() error {
		counted += 5
		qt.Check(t, qt.Equals(l.lost(counted), 3))
		return l.during(count, func() error { // another one at the same time
			counted += 2
			qt.Check(t, qt.Equals(l.lost(counted), 3))
			return nil
		})
	})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(l.lost(counted), 3))
	counted += 4
	qt.Check(t, qt.Equals(l.lost(counted), 7))
	qt.Check(t, qt.Equals(l.lost(counted-1), 7)) // read before, asked about later

	failed := errors.New("failed")
	err = l.during(count, func() error { counted++; return failed })
	qt.Check(t, qt.ErrorIs(err, failed))
	qt.Check(t, qt.Equals(l.lost(counted), 7))
}
