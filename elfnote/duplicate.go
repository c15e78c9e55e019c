// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"hash/maphash"
	"math"
	"math/bits"
)

// duplicates finds the notes that are identical to an earlier one; link-time
// optimisation may leave several for one site.
//
// A note with a higher location than all before it is new. In most files, whose
// notes follow the order of the code, nothing else is ever done. At the first
// note that is not higher those before it are read once more, into a hash
// table.
type duplicates struct {
	highest uint64 // the location so far, then the highest there can be
	count   int    // of notes so far
	seed    maphash.Seed
	table   []duplicate // of a length that is a power of two
}

// duplicate identifies a note, in a quarter of the memory that it takes.
// Only notes of one location could be taken for each other, if the 64 bits of
// their hashes were the same. The seed is secret, so that nobody can craft such
// notes, nor notes that collide in the table.
type duplicate struct {
	location uint64
	hash     uint64 // of the descriptor up to its last string; odd, 0 is a free place
}

// add reports whether a note that is identical to the walk's current one has
// come before. If not, it remembers it.
func (d *duplicates) add(w *probeWalk) bool {
	if w.location > d.highest {
		d.highest = w.location
		d.count++
		return false
	}
	return d.addUnordered(w)
}

func (d *duplicates) addUnordered(w *probeWalk) bool {
	if d.table == nil {
		d.highest = math.MaxUint64
		d.seed = maphash.MakeSeed()
		// Likely the rest of the notes is like those so far.
		d.resize(uint64(d.count) * w.total / (w.total - w.rest()))
		d.addBefore(w)
	}
	return d.insert(d.note(w))
}

// addBefore remembers the notes before the walk's current one, as far as they
// have all their strings. One that is malformed in another way does no harm:
// only a note that is malformed in the same way can be identical to it.
func (d *duplicates) addBefore(w *probeWalk) {
	before := w.file.walkProbes()
	defer before.close()
	for {
		ok, err := before.step()
		if !ok || before.index >= w.index {
			return
		}
		if err == nil {
			d.insert(d.note(&before))
		}
	}
}

// note returns what is remembered of the walk's current note.
func (d *duplicates) note(w *probeWalk) duplicate {
	return duplicate{w.location, maphash.Bytes(d.seed, w.data[w.descriptor:w.stringsEnd]) | 1}
}

// insert reports whether a note is in the table, and puts it there if not.
func (d *duplicates) insert(note duplicate) bool {
	if d.count*5/4 >= len(d.table) {
		d.resize(2 * uint64(d.count))
	}
	for i := note.hash >> 1; ; i++ {
		switch place := &d.table[i&uint64(len(d.table)-1)]; *place {
		case note:
			return true
		case duplicate{}:
			*place = note
			d.count++
			return false
		}
	}
}

// resize makes a table with room for a number of notes and moves those of the
// old one into it.
func (d *duplicates) resize(count uint64) {
	old := d.table
	d.table = make([]duplicate, max(64, 1<<bits.Len64(count+count/4)))
	d.count = 0
	for _, note := range old {
		if note != (duplicate{}) {
			d.insert(note)
		}
	}
}
