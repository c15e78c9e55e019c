// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"errors"
	"testing"

	"github.com/go-quicktest/qt"
)

// Ends that have no start because it is being attached are never told of, not
// even for a moment: a counter that goes back is taken for one that has begun
// anew.
func TestUnmatchedEndsNeverBecomeLess(t *testing.T) {
	var u unmatched
	var counted uint64
	count := func() (uint64, error) { return counted, nil }
	counted = 3
	qt.Check(t, qt.Equals(u.lost(counted), 3))
	err := u.attach(count, func() error {
		counted += 5
		qt.Check(t, qt.Equals(u.lost(counted), 3))
		return u.attach(count, func() error { // another one at the same time
			counted += 2
			qt.Check(t, qt.Equals(u.lost(counted), 3))
			return nil
		})
	})
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(u.lost(counted), 3))
	counted += 4
	qt.Check(t, qt.Equals(u.lost(counted), 7))
	qt.Check(t, qt.Equals(u.lost(counted-1), 7)) // read before, asked about later

	failed := errors.New("failed")
	err = u.attach(count, func() error { counted++; return failed })
	qt.Check(t, qt.ErrorIs(err, failed))
	qt.Check(t, qt.Equals(u.lost(counted), 7))
}
