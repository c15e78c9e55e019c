// SPDX-License-Identifier: BSD-2-Clause

package deadline

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestAllowanceRefills(t *testing.T) {
	for _, test := range []struct {
		rate        Rate
		took, later time.Duration
		taken, wait time.Duration
	}{
		{Rate{time.Second, 0.25}, 0, 0, 0, 0},
		{Rate{time.Second, 0.25}, time.Second, 0, time.Second, 0},
		{Rate{time.Second, 0.25}, 3 * time.Second, 0, 3 * time.Second, 8 * time.Second},
		{Rate{time.Second, 0.25}, 3 * time.Second, 4 * time.Second, 2 * time.Second, 4 * time.Second},
		{Rate{time.Second, 0.25}, 3 * time.Second, 8 * time.Second, time.Second, 0},
		{Rate{time.Second, 0.25}, 3 * time.Second, time.Hour, 0, 0},
		{Rate{time.Second, 4}, 3 * time.Second, 0, 3 * time.Second, time.Second / 2},
		{Rate{time.Second, 4}, 3 * time.Second, time.Second / 2, time.Second, 0},
	} {
		now := time.Now()
		var a Allowance
		a.Take(test.rate, now, test.took)
		now = now.Add(test.later)
		qt.Check(t, qt.Equals(a.Taken(test.rate, now), test.taken), qt.Commentf("%+v", test))
		qt.Check(t, qt.Equals(a.Wait(test.rate, now), test.wait), qt.Commentf("%+v", test))
	}
}

// The memory of owners has a limit, however many are made up.
func TestOwnersAreForgotten(t *testing.T) {
	var owners Owners
	rate := Rate{time.Second, 1}
	now := time.Now()
	for i := range 3 * maxOwners {
		owners.Take(fmt.Sprint("quick ", i), rate, now, time.Millisecond)
		qt.Assert(t, qt.IsTrue(len(owners) <= maxOwners))
		now = now.Add(time.Millisecond)
	}
	owners.Take("slow", rate, now, time.Hour)
	qt.Check(t, qt.IsTrue(owners["slow"].Wait(rate, now) > time.Minute))
	qt.Check(t, qt.Equals(owners["other"].Wait(rate, now), 0))
	now = now.Add(time.Second)
	owners.Tidy(rate, now)
	qt.Check(t, qt.HasLen(owners, 1))
}
