// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"fmt"
	"math/bits"
)

// An Encoding is where an [Arg] is, in the numbers that an eBPF program
// calculates with, for the tables of any program: offsets in the struct pt_regs
// that is the context of a uprobe's program, and shifts. By the Kind of the
// Arg, the value is
//
//	Constant    Value
//	InRegister  the word at Register, or those at Register and Index
//	Memory      the memory at the address
//	Address     the address
//	Bytes       unknown: Arg.Size bytes at the address
//
// where the address is word(Register) + word(Index)<<Scale + Value, modulo
// 2^64. Before it is shifted, the index is cut by Arg.IndexSize, and the
// address is cut by Arg.Address32. Of the value, the low Arg.Size bytes count,
// after a shift to the right by Shift bits, and Arg.Signed says how to extend
// them.
type Encoding struct {
	// Value is the constant, which is extended already, or the displacement, as
	// two's complement. libbpf calls it val_off.
	Value uint64
	// Register and Index are offsets in bytes from the start of struct pt_regs,
	// -1 for none, which counts as 0. If the value of a 32-bit program is in
	// two registers, Register has its low 4 bytes and Index its high 4 bytes.
	Register, Index int16
	// Scale is how many bits the word of the index is shifted to the left.
	Scale uint8
	// Shift is how many bits the register is shifted to the right: 8 for ah.
	Shift uint8
}

// Encode encodes an argument for a kernel of the given machine, whose 64-bit
// kernels may run 32-bit programs: see [Register.Slot]. Offsets are those of a
// 64-bit kernel. The error is the argument's own Err if the argument is
// Unavailable, and wraps [ErrNotSaved] if such a kernel does not save one of
// the registers.
func (a *Arg) Encode(kernel elf.Machine) (Encoding, error) {
	e := Encoding{Register: -1, Index: -1, Value: uint64(a.Displacement)}
	base, index := a.Base, a.Index
	switch a.Kind {
	case Constant:
		e.Value = a.Constant
	case InRegister:
		base, index = a.Register, a.High
		e.Shift = a.Register.Shift
	case Memory, Address, Bytes:
		e.Scale = uint8(max(bits.Len8(a.Scale), 1) - 1)
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
