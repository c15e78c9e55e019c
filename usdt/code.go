// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"cmp"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
)

// Sites closer together than nearSites are read by one call: copying that much costs less than another call.
// No read is longer than longestRead, so that the buffer stays in the processor's second-level cache.
const (
	nearSites   = 4 << 10
	longestRead = 128 << 10
)

// readCode calls found with the machine code at each site, up to n bytes: fewer where the file ends, and then err
// may say why. It reads neighbouring sites together, so it calls in the order of their offsets. The bytes are valid
// during the call. It stops at the first error that found returns.
func readCode(file *elfnote.File, sites []Site, n uint64, found func(site *Site, code []byte, err error) error) error {
	site := inOrder(sites)
	var buf []byte
	for from, to := 0, 0; from < len(sites); from = to {
		first := site(from).Offset
		end := first + n
		for to = from + 1; to < len(sites); to++ {
			next := site(to).Offset
			if next > end+nearSites || next+n-first > longestRead {
				break
			}
			end = next + n
		}

		buf = slices.Grow(buf[:0], int(end-first))[:end-first]
		read, err := file.ReadAt(buf, int64(first))
		for i := from; i < to; i++ {
			s := site(i)
			at := min(int(s.Offset-first), read)
			if err := found(s, buf[at:min(at+int(n), read)], err); err != nil {
				return err
			}
		}
	}
	return nil
}

// inOrder returns what finds the sites in the order of their offsets, which nearly always is their order already.
func inOrder(sites []Site) func(i int) *Site {
	sorted := true
	for i := 1; i < len(sites) && sorted; i++ {
		sorted = sites[i-1].Offset <= sites[i].Offset
	}
	if sorted {
		return func(i int) *Site { return &sites[i] }
	}
	order := make([]*Site, len(sites))
	for i := range sites {
		order[i] = &sites[i]
	}
	slices.SortFunc(order, func(a, b *Site) int { return cmp.Compare(a.Offset, b.Offset) })
	return func(i int) *Site { return order[i] }
}
