// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "debug/elf"

// Register is a register of the traced program that the kernel saves in struct
// pt_regs. Registers can be compared by ==. The zero Register stands for no
// register.
type Register struct {
	// Name is the register's name in the string, without sigils and in lower
	// case: "eax", "r14", "x3". A bare number gets the machine's letter: "r9"
	// for 9 on ppc64.
	Name string
	// Shift is how many bits to shift the saved register to the right before
	// its low bytes are the value: 8 for ah, bh, ch and dh, else 0.
	Shift uint8

	// size is the size in bytes that the name denotes: 4 for eax, 1 for ah.
	size uint8
	// slot is the index in the struct pt_regs of the 64-bit kernel that this
	// machine's programs run on (for arm, of the 32-bit ARM kernel).
	slot    uint8
	machine elf.Machine
}

// IsZero reports whether r is the zero Register, which stands for no register.
func (r Register) IsZero() bool { return r.machine == elf.EM_NONE }

// Slot returns where a kernel of the given machine saves the register in the
// struct pt_regs that is the context of a uprobe's BPF program: the index of an
// 8-byte word, or of a 4-byte word if the kernel is 32-bit ARM (elf.EM_ARM).
// The machine of the kernel may be another one than that of the program: x86-64
// kernels run i386 programs and arm64 kernels run arm programs. ok is false if
// the kernel does not run such programs, and for the zero Register.
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
