// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"encoding/binary"
)

// Cursor reads numbers and texts of DWARF and of call frame information. A read
// past the end of Bytes sets Short, and further reads return 0 or nothing.
type Cursor struct {
	Bytes []byte
	At    int // index in Bytes
	Order binary.ByteOrder
	Short bool
}

// Done reports whether there is nothing more to read, or Short is set.
func (c *Cursor) Done() bool { return c.Short || c.At >= len(c.Bytes) }

// Take returns the next n bytes, nil if there are not that many.
func (c *Cursor) Take(n uint64) []byte {
	if c.Short || c.At > len(c.Bytes) || n > uint64(len(c.Bytes)-c.At) {
		c.Short = true
		return nil
	}
	b := c.Bytes[c.At:][:n]
	c.At += int(n)
	return b
}

func (c *Cursor) Uint8() uint8 {
	if b := c.Take(1); b != nil {
		return b[0]
	}
	return 0
}

// Unsigned reads a number of 1, 2, 4 or 8 bytes. Other sizes set Short.
func (c *Cursor) Unsigned(size uint64) uint64 {
	b := c.Take(size)
	switch len(b) {
	case 1:
		return uint64(b[0])
	case 2:
		return uint64(c.Order.Uint16(b))
	case 4:
		return uint64(c.Order.Uint32(b))
	case 8:
		return c.Order.Uint64(b)
	}
	c.Short = true
	return 0
}

// Signed reads a number of 1, 2, 4 or 8 bytes, and extends its sign.
func (c *Cursor) Signed(size uint64) uint64 {
	unused := 64 - 8*size
	return uint64(int64(c.Unsigned(size)<<unused) >> unused)
}

// maxLEB bounds the bits of a number in LEB128, which may have leading zeros.
const maxLEB = 16 * 7

// leb reads a number in LEB128, and the number of its bits. Bits beyond 64 are
// dropped.
func (c *Cursor) leb() (value uint64, bits uint) {
	for {
		b := c.Uint8()
		if bits < 64 {
			value |= uint64(b&0x7f) << bits
		}
		bits += 7
		if b&0x80 == 0 {
			return value, bits
		}
		if bits == maxLEB {
			c.Short = true
			return 0, bits
		}
	}
}

// ULEB reads an unsigned number in LEB128.
func (c *Cursor) ULEB() uint64 {
	value, _ := c.leb()
	return value
}

// SLEB reads a signed number in LEB128.
func (c *Cursor) SLEB() int64 {
	value, bits := c.leb()
	if bits < 64 {
		unused := 64 - bits
		return int64(value<<unused) >> unused
	}
	return int64(value)
}

// Text reads a text of up to limit bytes, and the zero byte that ends it.
func (c *Cursor) Text(limit int) []byte {
	if !c.Done() {
		rest := c.Bytes[c.At:]
		text, _, found := bytes.Cut(rest[:min(len(rest), limit+1)], []byte{0})
		if c.At += len(text) + 1; found {
			return text
		}
	}
	c.Short = true
	return nil
}

// Unit reads the length of a unit, and moves past the unit. It returns a cursor
// over the rest of the unit, and the size of its offsets: 4 or 8 bytes.
func (c *Cursor) Unit() (unit Cursor, offset uint64) {
	length, offset := c.Unsigned(4), uint64(4)
	if length == 1<<32-1 {
		length, offset = c.Unsigned(8), 8
	}
	unit = *c
	c.Take(length)
	unit.Bytes, unit.Short = c.Bytes[:c.At], c.Short
	return unit, offset
}
