// SPDX-License-Identifier: BSD-2-Clause

// Package sitespec writes the specs by which eBPF programs find the arguments
// of a site.
package sitespec

import (
	"debug/elf"
	"encoding/binary"
	"math"

	"github.com/gousdt/gousdt/argspec"
)

// MaxArgs is the most arguments of a site that a BPF program can read: as many
// as sys/sdt.h has macros for. Further ones are not encoded.
const MaxArgs = 12

// Size is the size in bytes of a spec for bpf/usdt.bpf.h: where the arguments
// of a site are, and the cookie of the attachment. It is the value of a BPF
// map, in the byte order of the kernel. Equal specs can share a place in it. A
// slot is an index of words in the kernel's struct pt_regs, see
// [argspec.Register.Slot].
const Size = offsetWindowDisplacement + 4

// A spec is MaxArgs arguments, and what follows.
const (
	offsetCookie = MaxArgs * argumentSize // u64
	offsetCount  = offsetCookie + 8       // s16 number of arguments

	// The window is memory that holds several arguments, so that one read
	// fetches them. They can also be read one by one.
	offsetWindowBase         = offsetCount + 2 // u8 slot of the register that it is counted from
	offsetWindowSize         = offsetCount + 3 // u8 in bytes, 0 for none
	offsetWindowDisplacement = offsetCount + 4 // s32 from that register
)

// One argument.
const (
	argumentSize = 16

	offsetValue = 0  // u64 constant, already extended, or displacement
	offsetKind  = 8  // u8, 0 for unavailable
	offsetSize  = 9  // u8 in bytes; any up to 255 for kindBytes and if unavailable
	offsetFlags = 10 // u8
	offsetShift = 11 // u8 how many bits to shift a register to the right first
	offsetBase  = 12 // u8 slot of the register, or of the base
	offsetIndex = 13 // u8 slot of the index
	offsetScale = 14 // u8 how many bits to shift the index to the left
	offsetPlace = 15 // u8 offset in the window plus 1, 0 for not in it

	kindConstant = 1
	kindRegister = 2
	kindMemory   = 3
	// The sum for an address: the value of an Address, and of two registers,
	// the high one as an index that is shifted by 32 bits.
	kindSum   = 4
	kindBytes = 5 // no number: the eBPF side gives the address only

	flagSigned           = 1 << 0
	flagAddress32        = 1 << 1 // the address wraps at 32 bits
	flagBaseZeroExtended = 1 << 4 // from 32 bits, as the index is by bit 2 (by sign: bit 3)

	noSlot = 0xff
)

// encode fills in the spec of a site, which is zero before, for a kernel of the
// given machine and byte order. Of more than MaxArgs arguments the first ones
// are encoded. One that this kernel cannot read (see [argspec.Arg.Encode]) is
// encoded as unavailable: reading it gives the BPF program an error.
func encode(
	spec []byte, kernel elf.Machine, order binary.ByteOrder, cookie uint64, args []argspec.Arg,
) {
	args = args[:min(len(args), MaxArgs)]
	for i := range args {
		argument := spec[i*argumentSize:][:argumentSize]
		order.PutUint64(argument[offsetValue:], encodeArg(argument, &args[i], kernel))
	}
	encodeWindow(spec, order, args)
	order.PutUint64(spec[offsetCookie:], cookie)
	order.PutUint16(spec[offsetCount:], uint16(len(args)))
}

// encodeArg fills in the zero bytes of one argument but the value.
func encodeArg(b []byte, a *argspec.Arg, kernel elf.Machine) (value uint64) {
	if a.Size >= 0 && a.Size <= 0xff {
		b[offsetSize] = uint8(a.Size)
	}
	e, err := a.Encode(kernel)
	b[offsetBase], b[offsetIndex] = slotAt(e.Register, kernel), slotAt(e.Index, kernel)
	if err != nil {
		return 0
	}
	b[offsetKind] = [...]uint8{argspec.Constant: kindConstant, argspec.InRegister: kindRegister,
		argspec.Memory: kindMemory, argspec.Address: kindSum, argspec.Bytes: kindBytes}[a.Kind]
	b[offsetScale], b[offsetShift] = e.Scale, e.Shift
	for i, isSet := range [...]bool{a.Signed, a.Address32, a.IndexSize == 4, a.IndexSize == -4} {
		if isSet {
			b[offsetFlags] |= flagSigned << i
		}
	}
	if a.Kind == argspec.InRegister && e.Index >= 0 {
		b[offsetKind] = kindSum
		b[offsetFlags] |= flagBaseZeroExtended
		b[offsetScale] = 32
	}
	return e.Value
}

func slotAt(offset int16, kernel elf.Machine) uint8 {
	switch {
	case offset < 0:
		return noSlot
	case kernel == elf.EM_ARM:
		return uint8(offset / 4)
	}
	return uint8(offset / 8)
}

// windowSize is the most bytes of memory that the BPF side reads at once: room
// for MaxArgs words. More would take more of the 512 bytes of stack that a BPF
// program has.
const windowSize = MaxArgs * 8

var _ uint8 = windowSize // as offsetPlace has to be

// encodeWindow looks for memory that holds several of the arguments, such as
// neighbours on the stack, and puts it into the spec, in which the arguments
// are encoded already. BPF_USDT reads that memory once, not for each argument.
// The window is where it holds the most arguments.
func encodeWindow(spec []byte, order binary.ByteOrder, args []argspec.Arg) {
	// Arguments at a register plus a displacement. Each is inside one word of 8
	// bytes counted from the register, because the BPF side takes it out of one
	// word.
	type operand struct {
		start, end     int64 // displacements
		base, argument uint8
	}
	var buffer [MaxArgs]operand
	operands := buffer[:0]
	for i := range args {
		b := spec[i*argumentSize:][:argumentSize]
		start, size := args[i].Displacement, int64(b[offsetSize])
		if b[offsetKind] == kindMemory && b[offsetFlags]&flagAddress32 == 0 &&
			b[offsetBase] != noSlot && b[offsetIndex] == noSlot &&
			start >= math.MinInt32 && start <= math.MaxInt32-8 && start&7+size <= 8 {
			operands = append(operands, operand{start, start + size, b[offsetBase], uint8(i)})
		}
	}

	var base uint8
	var start, end int64
	most := 1 // a window pays from two arguments on
	for _, first := range operands {
		// The window begins with a whole word, which is in one page: registers
		// that point to the stack are multiples of 8. Where one is not, at
		// worst the window cannot be read, and then the arguments are read one
		// by one.
		from, to, count := first.start&^7, first.end, 0
		for _, o := range operands {
			if o.base == first.base && o.start >= from && o.end-from <= windowSize {
				to = max(to, o.end)
				count++
			}
		}
		if count > most {
			most, base, start, end = count, first.base, from, to
		}
	}
	if most == 1 {
		return
	}

	spec[offsetWindowBase] = base
	spec[offsetWindowSize] = uint8(end - start)
	order.PutUint32(spec[offsetWindowDisplacement:], uint32(start))
	for _, o := range operands {
		if o.base == base && o.start >= start && o.end <= end {
			spec[int(o.argument)*argumentSize+offsetPlace] = uint8(o.start-start) + 1
		}
	}
}
