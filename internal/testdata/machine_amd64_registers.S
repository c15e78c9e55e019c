/* SPDX-License-Identifier: BSD-2-Clause */

/* All general registers of x86-64 but the stack pointer, by all their names.
   Register number i, in the order of the arguments below, holds
   0xf1e2d3c4b5a69700 + i * 0x0101. */

#include "site.h"

#if defined(__x86_64__)

	.text
	.globl fire_registers_assembly
	.hidden fire_registers_assembly
	.type fire_registers_assembly, %function
fire_registers_assembly:
	push %rbx
	push %rbp
	push %r12
	push %r13
	push %r14
	push %r15
	movabs $0xf1e2d3c4b5a69700, %rax
	movabs $0xf1e2d3c4b5a69801, %rbx
	movabs $0xf1e2d3c4b5a69902, %rcx
	movabs $0xf1e2d3c4b5a69a03, %rdx
	movabs $0xf1e2d3c4b5a69b04, %rsi
	movabs $0xf1e2d3c4b5a69c05, %rdi
	movabs $0xf1e2d3c4b5a69d06, %rbp
	movabs $0xf1e2d3c4b5a69e07, %r8
	movabs $0xf1e2d3c4b5a69f08, %r9
	movabs $0xf1e2d3c4b5a6a009, %r10
	movabs $0xf1e2d3c4b5a6a10a, %r11
	movabs $0xf1e2d3c4b5a6a20b, %r12
	movabs $0xf1e2d3c4b5a6a30c, %r13
	movabs $0xf1e2d3c4b5a6a40d, %r14
	movabs $0xf1e2d3c4b5a6a50e, %r15
	site gousdt_test, registers_64a, "8@%rax 8@%rbx 8@%rcx 8@%rdx 8@%rsi 8@%rdi 8@%rbp 8@%r8 8@%r9 8@%r10 8@%r11 8@%r12"
	site gousdt_test, registers_64b, "8@%r13 8@%r14 8@%r15"
	site gousdt_test, registers_32a, "-4@%eax -4@%ebx -4@%ecx -4@%edx -4@%esi -4@%edi -4@%ebp -4@%r8d -4@%r9d -4@%r10d -4@%r11d -4@%r12d"
	site gousdt_test, registers_32b, "-4@%r13d -4@%r14d -4@%r15d"
	site gousdt_test, registers_16a, "-2@%ax -2@%bx -2@%cx -2@%dx -2@%si -2@%di -2@%bp -2@%r8w -2@%r9w -2@%r10w -2@%r11w -2@%r12w"
	site gousdt_test, registers_16b, "-2@%r13w -2@%r14w -2@%r15w"
	site gousdt_test, registers_8a, "1@%al 1@%bl 1@%cl 1@%dl 1@%sil 1@%dil 1@%bpl 1@%r8b 1@%r9b 1@%r10b 1@%r11b 1@%r12b"
	site gousdt_test, registers_8b, "1@%r13b 1@%r14b 1@%r15b"
	site gousdt_test, registers_high, "1@%ah -1@%bh 1@%ch -1@%dh"
	pop %r15
	pop %r14
	pop %r13
	pop %r12
	pop %rbp
	pop %rbx
	ret
	.size fire_registers_assembly, . - fire_registers_assembly

#endif

	.section .note.GNU-stack, "", %progbits
