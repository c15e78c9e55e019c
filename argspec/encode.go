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

// Encode returns where the argument is on a kernel of the given machine, which
// need not be the program's: see [Register.Slot]. The error is the argument's
// own Err if it is Unavailable, and wraps [ErrNotSaved] if such a kernel does
// not save one of the registers. A Scale that is no power of two is an error.
func (a *Arg) Encode(kernel elf.Machine) (Encoding, error) {
	var err error
	fail := func(reason *reason, format string, of ...any) {
		err = &unavailableError{raw: a.Raw, reason: reason, detail: fmt.Sprintf(format, of...)}
	}
	offset := func(r Register) int16 {
		switch slot, ok := r.Slot(kernel); {
		case ok && kernel == elf.EM_ARM:
			return int16(4 * slot)
		case ok:
			return int16(8 * slot)
		case !r.isZero():
			fail(errNotSaved, "register %s on a kernel for %v", r.Name, kernel)
		}
		return -1
	}
	e := Encoding{Value: uint64(a.Displacement), Register: offset(a.Base), Index: offset(a.Index)}
	switch a.Kind {
	case Constant:
		e.Value = a.Constant
	case InRegister:
		e.Register, e.Index, e.Shift = offset(a.Register), offset(a.High), a.Register.Shift
	case Memory, Address, Bytes:
		if a.Scale&(a.Scale-1) != 0 {
			fail(errIndex, "scale %d", a.Scale)
		}
		e.Scale = uint8(max(bits.Len8(a.Scale), 1) - 1)
	default:
		err = a.Err
	}
	if err != nil || a.Kind == Unavailable {
		return Encoding{Register: -1, Index: -1}, err
	}
	return e, nil
}
