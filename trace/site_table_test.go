// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"testing"

	"github.com/go-quicktest/qt"
)

// A large file that was attached once does not cost memory for good.
func TestSiteTableShrinksWhenNothingIsAttached(t *testing.T) {
	var table siteTable
	add := func(n int) []*Site {
		sites := make([]*Site, n)
		for i := range sites {
			sites[i] = &Site{}
			qt.Assert(t, qt.IsNil(table.add(sites[i])))
		}
		return sites
	}
	many, one := add(3*1000), add(1)
	table.remove(many)
	qt.Check(t, qt.Equals(table.get(one[0].id), one[0]))
	table.remove(one)
	qt.Check(t, qt.IsNil(table.sites.Load()))
	qt.Check(t, qt.HasLen(table.free, 0))
	again := add(1)
	qt.Check(t, qt.Equals(table.get(again[0].id), again[0]))
	qt.Check(t, qt.IsNil(table.get(1000)))
}
