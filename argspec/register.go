// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "debug/elf"

// Register is a register of the traced program that the kernel saves in struct
// pt_regs. It is comparable; the zero Register is none.
type Register struct {
	// Name is the register as the string has it, without sigils and in lower
	// case: "eax", "r14", "x3". A bare number gets the machine's letter: "r9"
	// for 9 on ppc64.
	Name string
	// Size is the width in bytes that the name denotes: 4 for eax, 1 for ah.
	// Arg.Size is what counts for a value; for a base or an index in an
	// x86-64 program a Size of 4 goes with Arg.Address32.
	Size uint8
	// Shift is how far to shift the saved register to the right, in bits,
	// before its low bytes are the value: 8 for ah, bh, ch and dh, else 0.
	Shift uint8

	// slot is the index in the struct pt_regs of the 64-bit kernel that this
	// machine's programs run on (for arm, of the 32-bit ARM kernel).
	slot    uint8
	machine elf.Machine
}

// IsZero reports whether r is the zero Register, that is, none.
func (r Register) IsZero() bool { return r.machine == elf.EM_NONE }

// Slot returns where the given kernel saves the register in the struct pt_regs
// that a uprobe's BPF program gets as its context: the index of an 8-byte word,
// or of a 4-byte word if the kernel is 32-bit ARM (elf.EM_ARM). kernel is the
// machine of the running kernel, which may be another one than that of the
// program: x86-64 runs i386 programs and arm64 runs arm programs. ok is false
// if that kernel cannot run the program, and for the zero Register.
func (r Register) Slot(kernel elf.Machine) (slot int, ok bool) {
	switch {
	case r.machine == elf.EM_NONE:
		return 0, false
	case r.machine == elf.EM_386:
		// The tables hold x86-64's slots. A 32-bit x86 kernel is not served.
		return int(r.slot), kernel == elf.EM_X86_64
	case r.machine == kernel:
		return int(r.slot), true
	case r.machine == elf.EM_ARM && kernel == elf.EM_AARCH64:
		// The kernel's arch/arm64/include/asm/ptrace.h: a 32-bit program's
		// r0-r14 are the first words (compat_sp is regs[13], compat_lr
		// regs[14]); its pc is the pc.
		if r.slot == armPC {
			return arm64PC, true
		}
		return int(r.slot), true
	}
	return 0, false
}
