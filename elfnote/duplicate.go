// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"hash/maphash"
	"math/bits"
)

// duplicates finds the notes that are identical to an earlier one; link-time
// optimisation may leave several for one site.
//
// A note with a higher location than all before it is new. In most files, whose
// notes follow the order of the code, nothing else is ever done. The first note
// that is not higher has those before it put into a hash table.
//
// The table holds places of descriptors and reads all else from the notes: four
// bytes for a note, where a map of strings would take fifty. A slot is 0 or, in
// the low bits, the place, and above it a few bits of the hash, so that notes
// are seldom compared in vain. maphash's seed keeps a crafted file from
// choosing notes that collide.
type duplicates struct {
	first   noteWalk // at the start of the notes
	highest uint64   // the location
	count   int      // of notes so far
	table   []uint32 // of a length that is a power of two
	seed    maphash.Seed
}

const (
	placeBits = 26 // enough for maxNoteBytes; no descriptor starts at 0
	placeMask = 1<<placeBits - 1
)

var _ [1<<placeBits - maxNoteBytes]struct{} // does not compile if it is not enough

// add tells whether the descriptor data[start:end], which is that of a site at
// location, has come before; if not, it remembers it.
func (d *duplicates) add(location uint64, start, end int) bool {
	if d.table == nil {
		if location > d.highest || d.count == 0 {
			d.highest = location
			d.count++
			return false
		}
		d.build(start)
	}
	return d.insert(start, end)
}

// build makes the table, with the notes that come before a place.
func (d *duplicates) build(place int) {
	d.seed = maphash.MakeSeed()
	// Likely the rest of the notes is like those so far.
	d.resize(int(int64(d.count) * int64(len(d.first.data)) / int64(place)))
	for walk := d.first; ; {
		ok, err := walk.step()
		if !ok || err == nil && walk.start >= place {
			return
		}
		if err == nil && walk.is(probeOwner, probeType) {
			d.insertWhole(walk.start, walk.stop)
		}
	}
}

// insertWhole inserts the descriptor that starts at a place and ends before
// stop, if it has all its strings. One that is broken in another way does no
// harm: only a note broken in the same way can be identical to it.
func (d *duplicates) insertWhole(start, stop int) {
	end := start + 3*d.first.words.size()
	for range 3 {
		length := -1
		if end < stop {
			length = bytes.IndexByte(d.first.data[end:stop], 0)
		}
		if length < 0 {
			return
		}
		end += length + 1
	}
	d.insert(start, end)
}

// resize makes a table with room for a number of notes and moves those of the
// old one into it.
func (d *duplicates) resize(count int) {
	old := d.table
	d.table = make([]uint32, max(64, 1<<bits.Len(uint(count+count/4))))
	d.count = 0
	for _, slot := range old {
		if slot != 0 {
			d.insertWhole(int(slot&placeMask), len(d.first.data))
		}
	}
}

// insert tells whether a descriptor is in the table, and puts it there if not.
//
// It is looked for where the hash of its location says. If another one of the
// same location is found instead, it is looked for where the hash of all of it
// says: so even a file all of whose notes have one location is read in time in
// proportion to its size.
func (d *duplicates) insert(start, end int) bool {
	if d.count*5/4 >= len(d.table) {
		d.resize(2 * d.count)
	}
	data := d.first.data
	descriptor := data[start:end]
	location := descriptor[:d.first.words.size()]
	hash := maphash.Bytes(d.seed, location)
	whole := false
	for i := hash; ; i++ {
		slot := &d.table[i&uint64(len(d.table)-1)]
		tag := uint32(hash >> 32 &^ placeMask)
		if *slot == 0 {
			*slot = tag | uint32(start)
			d.count++
			return false
		}
		if *slot&^placeMask != tag {
			continue
		}
		other := data[*slot&placeMask:]
		if bytes.HasPrefix(other, descriptor) {
			return true
		}
		if !whole && bytes.HasPrefix(other, location) {
			hash, whole = maphash.Bytes(d.seed, descriptor), true
			i = hash - 1
		}
	}
}
