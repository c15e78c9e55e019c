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
// map, in the byte order of the kernel. Equal specs can share a place in it.
//
//	0    12 arguments of 16 bytes
//	192  u64 cookie
//	200  s16 number of arguments, at most 12
//	202  u8 slot of the register that the window is counted from
//	203  u8 size of the window in bytes, 0 for none
//	204  s32 displacement of the window from that register
//
// One argument:
//
//	0   u64 value: the constant, already extended, or the displacement
//	8   u8  kind: 0 unavailable, 1 constant, 2 register, 3 memory, 4 sum, 5
//	        bytes
//	9   u8  size in bytes: 1, 2, 4, 8; other sizes, up to 255, if unavailable
//	10  u8  flags: bit 0 signed, bit 1 the address wraps at 32 bits, bit 2 the
//	        index is zero-extended from 32 bits, bit 3 it is sign-extended, bit
//	        4 the base is zero-extended from 32 bits
//	11  u8  how many bits to shift a register to the right first
//	12  u8  slot of the register, or of the base; 0xff none
//	13  u8  slot of the index; 0xff none
//	14  u8  how many bits to shift the index to the left
//	15  u8  offset in the window plus 1; 0 for not in it
//
// A sum is base, index and displacement added as for an address of memory. It
// is the value of an Address, and of two registers: the low one as the base,
// the high one as an index that is shifted by 32 bits. Bytes are memory that is
// no number: the eBPF side gives its address only.
//
// The window is memory that holds several arguments, so that one read fetches
// them. They can also be read one by one.
//
// A slot is an index of words in the kernel's struct pt_regs, see
// [argspec.Register.Slot].
const Size = 208

// Offsets and values of the layout above.
const (
	argumentSize = 16

	offsetValue = 0
	offsetKind  = 8
	offsetSize  = 9
	offsetFlags = 10
	offsetShift = 11
	offsetBase  = 12
	offsetIndex = 13
	offsetScale = 14
	offsetPlace = 15

	offsetCookie = MaxArgs * argumentSize
	offsetCount  = offsetCookie + 8

	offsetWindowBase         = offsetCount + 2
	offsetWindowSize         = offsetCount + 3
	offsetWindowDisplacement = offsetCount + 4

	kindConstant = 1
	kindRegister = 2
	kindMemory   = 3
	kindSum      = 4
	kindBytes    = 5

	flagSigned            = 1 << 0
	flagAddress32         = 1 << 1
	flagIndexZeroExtended = 1 << 2
	flagIndexSignExtended = 1 << 3
	flagBaseZeroExtended  = 1 << 4

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
	b[offsetBase], b[offsetIndex] = noSlot, noSlot
	e, err := a.Encode(kernel)
	if err != nil {
		return 0
	}
	b[offsetKind] = [...]uint8{argspec.Constant: kindConstant, argspec.InRegister: kindRegister,
		argspec.Memory: kindMemory, argspec.Address: kindSum, argspec.Bytes: kindBytes}[a.Kind]
	if e.Register >= 0 {
		b[offsetBase] = uint8(e.Register / 8)
	}
	if e.Index >= 0 {
		b[offsetIndex] = uint8(e.Index / 8)
	}
	b[offsetScale], b[offsetShift] = e.Scale, e.Shift
	for _, flag := range []struct {
		bit uint8
		set bool
	}{
		{flagSigned, a.Signed},
		{flagAddress32, a.Address32},
		{flagIndexZeroExtended, a.IndexSize == 4},
		{flagIndexSignExtended, a.IndexSize == -4},
	} {
		if flag.set {
			b[offsetFlags] |= flag.bit
		}
	}
	if a.Kind == argspec.InRegister && e.Index >= 0 {
		b[offsetKind] = kindSum
		b[offsetFlags] |= flagBaseZeroExtended
		b[offsetScale] = 32
	}
	return e.Value
}

// windowSize is the most bytes of memory that the BPF side reads at once: room
// for MaxArgs words. More would take more of the 512 bytes of stack that a BPF
// program has.
const windowSize = MaxArgs * 8

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
