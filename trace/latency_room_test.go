// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// There is room for what processors hold back, but not for any size.
func TestRoomForStarts(t *testing.T) {
	for _, test := range []struct {
		size, processors, want int
	}{
		{1024, 2, maxSaved + 2*heldBack},
		{1024, 64, maxSaved + 64*heldBack},
		{2048, 1024, 2 * maxSavedMemory / 2048},
		{16 << 10, 2, (maxSavedMemory + 2*heldBack*16<<10) / (16 << 10)},
		{100 << 10, 64, minSaved},
	} {
		qt.Check(t, qt.Equals(savedStarts(test.size, test.processors), test.want),
			qt.Commentf("%+v", test))
	}
}
