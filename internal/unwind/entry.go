// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "strings"

// common is what entries have in common (a CIE).
type common struct {
	codeFactor   uint64
	dataFactor   int64
	returns      uint64 // number of the register, or column, of the return address
	encoding     uint8  // of addresses
	sized        bool   // there are sizes of augmentation data
	signal       bool   // the frame is that of an interrupted function
	instructions code
}

// entry is the call frame information of a function (an FDE).
type entry struct {
	common
	start, size  uint64
	instructions code
}

// code is a range of the section .eh_frame: instructions or an expression.
type code struct{ start, end int }

// record is a length and what follows.
type record struct {
	cursor        // behind the number that says which kind of record it is
	isCommon bool // else it is an entry
	common   int  // of an entry: where its common part is
	next     int  // where the next record is; not behind this one at the end of the section
}

func (t *Table) record(at int) record {
	nothing := record{cursor: cursor{short: true}}
	if at < 0 || at > len(t.frames.bytes) {
		return nothing
	}
	c := cursor{bytes: t.frames.bytes, at: at, order: t.order}
	length, wide := c.unsigned(4), uint64(4)
	if length == 1<<32-1 {
		length, wide = c.unsigned(8), 8
	}
	if c.short || length < wide || length > uint64(len(c.bytes)-c.at) {
		return nothing
	}
	here := c.at
	next := here + int(length)
	c.bytes = c.bytes[:next]
	back := c.unsigned(wide)
	r := record{cursor: c, isCommon: back == 0, next: next}
	if back > uint64(here) {
		r.short = true
		return r
	}
	r.common = here - int(back)
	return r
}

// entry returns the entry at a place in the section, and the place behind. A
// common part is an entry of no size.
func (t *Table) entry(at int) (*entry, int, error) {
	c := t.record(at)
	e := &entry{}
	if c.short || c.isCommon {
		return e, c.next, nil
	}
	if err := t.readCommon(c.common, &e.common); err != nil {
		return nil, c.next, err
	}
	e.start = c.pointer(e.encoding, 8, t.frames.address, 0)
	e.size = c.number(e.encoding, 8)
	if e.sized {
		c.take(c.uleb())
	}
	if c.short || c.next-c.at > maxInstructions {
		return nil, c.next, errMalformed
	}
	e.instructions = code{c.at, c.next}
	return e, c.next, nil
}

func (t *Table) readCommon(at int, common *common) error {
	c := t.record(at)
	if c.short || !c.isCommon {
		return errMalformed
	}
	version, augmentation := c.u8(), c.text()
	switch version {
	case 1, 3:
	case 4:
		if addressSize, segmentSize := c.u8(), c.u8(); addressSize != 8 || segmentSize != 0 {
			return errMalformed
		}
	default:
		return errMalformed
	}
	if augmentation == "eh" {
		c.unsigned(8) // of GCC before version 3
		augmentation = ""
	}
	common.codeFactor, common.dataFactor = c.uleb(), c.sleb()
	if version == 1 {
		common.returns = uint64(c.u8())
	} else {
		common.returns = c.uleb()
	}
	if rest, sized := strings.CutPrefix(augmentation, "z"); sized {
		common.sized = true
		data := cursor{bytes: c.take(c.uleb()), order: t.order}
		if !data.augmented(common, rest) {
			return errMalformed
		}
	} else if augmentation != "" {
		return errMalformed
	}
	if c.short || c.next-c.at > maxInstructions {
		return errMalformed
	}
	common.instructions = code{c.at, c.next}
	return nil
}

// augmented reads what the letters of an augmentation stand for, and returns
// whether they are all known.
func (c *cursor) augmented(common *common, letters string) bool {
	for _, letter := range letters {
		switch letter {
		case 'R':
			common.encoding = c.u8()
		case 'L':
			c.u8()
		case 'P':
			encoding := c.u8()
			c.number(encoding, 8)
		case 'S':
			common.signal = true
		case 'B', 'G': // arm64: how pointers are signed, and that memory is tagged
		default:
			return false
		}
	}
	return !c.short
}
