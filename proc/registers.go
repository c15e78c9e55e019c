// SPDX-License-Identifier: BSD-2-Clause

package proc

import "debug/elf"

// Registers are the registers of a thread at some moment. Package trace
// delivers them with a copy of the stack, from which package stack unwinds it.
type Registers struct {
	// Machine is the machine of the kernel. The registers of a 32-bit program
	// are those of the 64-bit machine, too.
	Machine elf.Machine
	// PC is the address of the instruction in the process, and SP the stack
	// pointer.
	PC, SP uint64
	// General are the general registers, by the numbers that DWARF gives them.
	// x86-64: rax, rdx, rcx, rbx, rsi, rdi, rbp, rsp, r8 to r15; arm64: x0 to
	// x30, sp; riscv64: x0 to x31; s390x: r0 to r15.
	General []uint64
}
