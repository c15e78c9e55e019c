// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "debug/elf"

// MaxRegisters is how many registers a machine has at most: the general ones,
// and on x86-64 the instruction pointer.
const MaxRegisters = 32

// machine says what the numbers of registers mean. They are those of the
// machine's ABI for DWARF.
type machine struct {
	registers    int
	stackPointer int
	framePointer int

	// instruction is the number of the instruction pointer, -1 where it has
	// none.
	instruction int

	// savedFrame and savedReturn tell where a function with a frame pointer has
	// saved the caller's, and the return address, as offsets from the frame
	// pointer; and frame is where the caller's stack begins. All 0: unknown.
	savedFrame, savedReturn, frame int64

	// belowFrame is how far the caller's stack pointer is below the canonical
	// frame address.
	belowFrame uint64

	// address are the bits of a return address that are the address, the others
	// may be its signature.
	address uint64
}

var machines = map[elf.Machine]*machine{
	elf.EM_X86_64: {
		registers: 17, stackPointer: 7, framePointer: 6, instruction: 16,
		savedFrame: 0, savedReturn: 8, frame: 16, address: 1<<64 - 1,
	},
	// Pointers are signed above the 48 bits that programs get unless they ask
	// for more.
	elf.EM_AARCH64: {
		registers: 32, stackPointer: 31, framePointer: 29, instruction: -1,
		savedFrame: 0, savedReturn: 8, frame: 16, address: 1<<48 - 1,
	},
	elf.EM_RISCV: {
		registers: 32, stackPointer: 2, framePointer: 8, instruction: -1,
		savedFrame: -16, savedReturn: -8, frame: 0, address: 1<<64 - 1,
	},
	elf.EM_S390: {
		registers: 16, stackPointer: 15, framePointer: 11, instruction: -1, belowFrame: 160,
		address: 1<<64 - 1,
	},
}
