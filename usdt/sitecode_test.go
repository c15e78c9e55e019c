// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
)

func TestReadCodeInTheOrderOfOffsets(t *testing.T) {
	for _, test := range []struct {
		offsets []uint64
		want    []int32
	}{
		{[]uint64{7}, []int32{0}},
		{[]uint64{1, 2, 2, 3}, []int32{0, 1, 2, 3}},
		{[]uint64{3, 1, 4, 2}, []int32{1, 3, 0, 2}},
	} {
		var sites []Site
		for _, offset := range test.offsets {
			sites = append(sites, Site{Site: elfnote.Site{Offset: offset}})
		}
		qt.Assert(t, qt.DeepEquals(inOrder(sites), test.want))
	}
}
