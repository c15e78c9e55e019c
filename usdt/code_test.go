// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
)

func TestSitesAreReadInTheOrderOfTheirOffsets(t *testing.T) {
	for _, offsets := range [][]uint64{{1, 2, 2, 3}, {3, 1, 2, 1}, {7}} {
		var sites []Site
		for _, offset := range offsets {
			sites = append(sites, Site{Site: elfnote.Site{Offset: offset}})
		}
		site := inOrder(sites)
		seen := make(map[*Site]bool)
		for i := range sites {
			seen[site(i)] = true
			qt.Assert(t, qt.IsTrue(i == 0 || site(i-1).Offset <= site(i).Offset), qt.Commentf("%v", offsets))
		}
		qt.Assert(t, qt.HasLen(seen, len(sites)))
	}
}
