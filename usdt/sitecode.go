// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
)

// Sites closer together than nearSites are read by one call: copying that much
// costs less than another call. No read is longer than the buffer, which stays
// in the processor's second-level cache.
const nearSites = 4 << 10

// readCode calls found with the index of each site and the machine code there,
// up to n bytes: fewer where the file ends, and then err may say why. It reads
// neighbouring sites together, so it calls in the order of their offsets. The
// bytes are valid during the call. It stops at the first error that found
// returns.
func readCode(
	file *elfnote.File, sites []siteRow, n uint64, found func(i int, code []byte, err error) error,
) error {
	order := inOrder(sites)
	index := func(i int) int {
		if order == nil {
			return i
		}
		return int(order[i])
	}
	buffer := elffile.NewBuffer()
	defer buffer.Free()
	for from, to := 0, 0; from < len(sites); from = to {
		first := sites[index(from)].offset
		end := first + n
		for to = from + 1; to < len(sites); to++ {
			next := sites[index(to)].offset
			if next > end+nearSites || next+n-first > uint64(len(buffer)) {
				break
			}
			end = next + n
		}

		code := buffer[:end-first]
		read, err := file.ReadAt(code, int64(first))
		for i := from; i < to; i++ {
			site := index(i)
			at := min(int(sites[site].offset-first), read)
			if err := found(site, code[at:min(at+int(n), read)], err); err != nil {
				return err
			}
		}
	}
	return nil
}

// inOrder returns the indices of sites in the order of their offsets, nil where
// that is their order already, as nearly always.
func inOrder(sites []siteRow) []int32 {
	byOffset := func(a, b siteRow) int { return cmp.Compare(a.offset, b.offset) }
	if slices.IsSortedFunc(sites, byOffset) {
		return nil
	}
	order := make([]int32, len(sites))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortFunc(order, func(a, b int32) int { return byOffset(sites[a], sites[b]) })
	return order
}
