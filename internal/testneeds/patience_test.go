// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestPatienceIsAtLeastTheUsualAndBounded(t *testing.T) {
	got := Patience(time.Minute)
	qt.Assert(t, qt.IsTrue(got >= time.Minute), qt.Commentf("%v", got))
	qt.Assert(t, qt.IsTrue(got <= mostPatience*time.Minute), qt.Commentf("%v", got))
	t.Logf("work takes %.1f times as long as usual, and %.1f tasks want each processor", slowness(),
		load())
}
