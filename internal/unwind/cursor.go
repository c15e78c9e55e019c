// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"encoding/binary"
)

// cursor reads numbers. Past the end they are 0, and short is set.
type cursor struct {
	bytes []byte
	at    int
	order binary.ByteOrder
	short bool
}

func (c *cursor) done() bool { return c.short || c.at >= len(c.bytes) }

// take returns the next bytes, nil if there are not so many.
func (c *cursor) take(n uint64) []byte {
	if c.short || c.at > len(c.bytes) || n > uint64(len(c.bytes)-c.at) {
		c.short = true
		return nil
	}
	b := c.bytes[c.at:][:n]
	c.at += int(n)
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

// unsigned reads 1, 2, 4 or 8 bytes.
func (c *cursor) unsigned(size uint64) uint64 {
	b := c.take(size)
	switch {
	case b == nil:
		return 0
	case size == 1:
		return uint64(b[0])
	case size == 2:
		return uint64(c.order.Uint16(b))
	case size == 4:
		return uint64(c.order.Uint32(b))
	default:
		return c.order.Uint64(b)
	}
}

func (c *cursor) signed(size uint64) uint64 {
	unused := 64 - 8*size
	return uint64(int64(c.unsigned(size)<<unused) >> unused)
}

const (
	// maxLEB bounds the bits of a number in base 128, which may have zeros in
	// front.
	maxLEB = 16 * 7

	// maxText bounds a text. Compilers write up to 7 letters.
	maxText = 32
)

// leb reads a number in base 128, and how many bits it has. Bits beyond 64 are
// dropped.
func (c *cursor) leb() (value uint64, bits uint) {
	for {
		b := c.u8()
		if bits < 64 {
			value |= uint64(b&0x7f) << bits
		}
		bits += 7
		if b&0x80 == 0 {
			return value, bits
		}
		if bits == maxLEB {
			c.short = true
			return 0, bits
		}
	}
}

func (c *cursor) uleb() uint64 {
	value, _ := c.leb()
	return value
}

func (c *cursor) sleb() int64 {
	value, bits := c.leb()
	if bits < 64 {
		unused := 64 - bits
		return int64(value<<unused) >> unused
	}
	return int64(value)
}

// text reads up to a zero byte.
func (c *cursor) text() string {
	start := c.at
	for c.u8() != 0 && c.at-start <= maxText {
	}
	if c.short || c.at-start > maxText {
		c.short = true
		return ""
	}
	return string(c.bytes[start : c.at-1])
}

// The encodings of pointers (DW_EH_PE_*): a format, what the number is relative
// to, and a flag.
const (
	formatWord   = 0x00
	formatULEB   = 0x01
	formatU2     = 0x02
	formatU4     = 0x03
	formatU8     = 0x04
	formatSWord  = 0x08
	formatSLEB   = 0x09
	formatS2     = 0x0a
	formatS4     = 0x0b
	formatS8     = 0x0c
	formatMask   = 0x0f
	relativePC   = 0x10
	relativeData = 0x30
	relativeMask = 0x70
	isIndirect   = 0x80
	isOmitted    = 0xff
)

// number reads a pointer, or a difference, without what it is relative to.
func (c *cursor) number(encoding uint8, word uint64) uint64 {
	switch encoding & formatMask {
	case formatWord:
		return c.unsigned(word)
	case formatSWord:
		return c.signed(word)
	case formatULEB:
		return c.uleb()
	case formatSLEB:
		return uint64(c.sleb())
	case formatU2:
		return c.unsigned(2)
	case formatU4:
		return c.unsigned(4)
	case formatU8:
		return c.unsigned(8)
	case formatS2:
		return c.signed(2)
	case formatS4:
		return c.signed(4)
	case formatS8:
		return c.unsigned(8)
	}
	c.short = true
	return 0
}

// pointer reads the address of something. here is the address of the cursor's
// first byte, data what relativeData is about.
func (c *cursor) pointer(encoding uint8, word, here, data uint64) uint64 {
	at := here + uint64(c.at)
	value := c.number(encoding, word)
	switch encoding & (relativeMask | isIndirect) {
	case 0:
		return value
	case relativePC:
		return value + at
	case relativeData:
		return value + data
	}
	c.short = true // relative to what no linker uses here
	return 0
}
