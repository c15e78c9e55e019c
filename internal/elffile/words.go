// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"encoding/binary"
	"math/bits"
)

// words knows the byte order and the word size of a file. Its methods read at
// the start of b, which must be long enough.
//
// It stands in for binary.ByteOrder in the loop over the notes, where six calls
// through that interface for every note would be a third of the time.
type Words struct {
	Big  bool // most significant byte first
	Wide bool // ELF64
}

func (w Words) Order() binary.ByteOrder {
	if w.Big {
		return binary.BigEndian
	}
	return binary.LittleEndian
}

// size is the size of an address in bytes.
func (w Words) Size() int {
	if w.Wide {
		return 8
	}
	return 4
}

func (w Words) Uint16(b []byte) uint16 {
	v := binary.LittleEndian.Uint16(b)
	if w.Big {
		v = bits.ReverseBytes16(v)
	}
	return v
}

func (w Words) Uint32(b []byte) uint32 {
	v := binary.LittleEndian.Uint32(b)
	if w.Big {
		v = bits.ReverseBytes32(v)
	}
	return v
}

func (w Words) Uint64(b []byte) uint64 {
	v := binary.LittleEndian.Uint64(b)
	if w.Big {
		v = bits.ReverseBytes64(v)
	}
	return v
}

// address reads a word of the file's class.
func (w Words) Address(b []byte) uint64 {
	if w.Wide {
		return w.Uint64(b)
	}
	return uint64(w.Uint32(b))
}

// moved returns an address moved by a distance: addresses wrap around at the
// word size of the class.
func (w Words) Moved(address, distance uint64) uint64 {
	if w.Wide {
		return address + distance
	}
	return uint64(uint32(address + distance))
}
