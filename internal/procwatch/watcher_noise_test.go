// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

// Scans that find nothing new take a tenth of the time together, however many
// processes and owners they are of. An owner that makes little noise does not
// wait.
func TestNoiseTakesATenthOfTheTimeTogether(t *testing.T) {
	for _, owners := range []int{1, 10} {
		t.Run(fmt.Sprint(owners, " owners"), func(t *testing.T) {
			var a turns
			const scan, step, length = 2 * time.Millisecond, 10 * time.Millisecond, 100 * time.Second
			now := time.Unix(1000, 0)
			var took time.Duration
			of := make(map[string]int)
			for end := now.Add(length); now.Before(end); now = now.Add(step) {
				for i := range 40 {
					owner := fmt.Sprint(i % owners)
					if a.wait(owner, true, now) == 0 {
						a.take(owner, now, scan, true)
						took += scan
						of[owner]++
					}
				}
				qt.Assert(t, qt.Equals(a.wait("quiet", true, now), 0))
			}
			qt.Check(t, qt.IsTrue(took < length/8), qt.Commentf("%v", took))
			qt.Check(t, qt.IsTrue(took > length/12), qt.Commentf("%v", took))
			for owner, scans := range of {
				share := float64(time.Duration(scans)*scan) / float64(took) * float64(owners)
				qt.Check(t, qt.IsTrue(share > 0.8 && share < 1.2), qt.Commentf("%s: %v", owner, share))
			}
			a.take("quiet", now, scan, true)
			qt.Check(t, qt.Equals(a.wait("quiet", true, now), 0))
		})
	}
}
