// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"fmt"
	"math/bits"
)

// An Encoding is an [Arg] in the numbers that an eBPF program calculates with,
// for the tables of any program: offsets in the struct pt_regs that is the
// context of a uprobe's program, and shifts. The value of an argument is
//
//	Constant    Value
//	InRegister  the word at Register, or those at Register and Index
//	Memory      the memory at the address
//	Address     the address
//	Bytes       unknown: Size bytes at the address
//
// where the address is word(Register) + word(Index)<<Scale + Value, modulo
// 2^64. Registers that are missing count as 0. Of the value, the low Size bytes
// count, after a shift to the right by Shift bits. Signed says how to extend
// them to 64 bits.
type Encoding struct {
	Kind   Kind
	Size   int  // in bytes
	Signed bool // or else extended by zeros
	Float  bool // IEEE 754 bits of Size bytes

	// Value is the constant, which is extended already, or the displacement, as
	// two's complement. libbpf calls it val_off.
	Value uint64

	// Register and Index are offsets in bytes from the start of struct pt_regs,
	// -1 for none. If the value of a 32-bit program is in two registers,
	// Register has its low 4 bytes and Index its high 4 bytes.
	Register, Index int16
	// Scale is how many bits the word of the index is shifted to the left.
	Scale uint8
	// IndexSize is that of [Arg]: 4 and -4 if only the low 4 bytes of the index
	// count, as an unsigned or a signed number, and 0 if all count.
	IndexSize int8
	// Shift is how many bits the register is shifted to the right: 8 for ah.
	Shift uint8
	// Address32 reports whether the address is cut to its low 32 bits.
	Address32 bool
}

// Encode encodes an argument for a kernel of the given machine, whose 64-bit
// kernels may run 32-bit programs: see [Register.Slot]. Offsets are those of a
// 64-bit kernel. The error is the argument's own Err if the argument is
// Unavailable, and wraps [ErrNotSaved] if such a kernel does not save one of
// the registers.
func (a *Arg) Encode(kernel elf.Machine) (Encoding, error) {
	e := Encoding{Kind: a.Kind, Size: a.Size, Signed: a.Signed, Float: a.Float, Register: -1,
		Index: -1, Value: uint64(a.Displacement), Address32: a.Address32}
	base, index := a.Base, a.Index
	switch a.Kind {
	case Constant:
		e.Value = a.Constant
	case InRegister:
		base, index = a.Register, a.High
		e.Shift = a.Register.Shift
	case Memory, Address, Bytes:
		e.Scale, e.IndexSize = uint8(max(bits.Len8(a.Scale), 1)-1), a.IndexSize
	default:
		return Encoding{Register: -1, Index: -1}, a.Err
	}
	for _, r := range []struct {
		register *Register
		offset   *int16
	}{{&base, &e.Register}, {&index, &e.Index}} {
		if r.register.isZero() {
			continue
		}
		slot, ok := r.register.Slot(kernel)
		if !ok {
			return Encoding{Register: -1, Index: -1}, &unavailableError{raw: a.Raw, reason: errNotSaved,
				detail: fmt.Sprintf("register %s on a kernel for %v", r.register.Name, kernel)}
		}
		*r.offset = int16(8 * slot)
	}
	return e, nil
}
