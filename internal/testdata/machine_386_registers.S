/* SPDX-License-Identifier: BSD-2-Clause */

/* All general registers of i386 but the stack pointer, by all their names.
   Register number i, in the order of the arguments below, holds
   0xb5a69700 + i * 0x0101. */

#include "site.h"

#if defined(__i386__)

	.text
	.globl fire_registers_assembly
	.hidden fire_registers_assembly
	.type fire_registers_assembly, %function
fire_registers_assembly:
	push %ebx
	push %ebp
	push %esi
	push %edi
	movl $0xb5a69700, %eax
	movl $0xb5a69801, %ebx
	movl $0xb5a69902, %ecx
	movl $0xb5a69a03, %edx
	movl $0xb5a69b04, %esi
	movl $0xb5a69c05, %edi
	movl $0xb5a69d06, %ebp
	site gousdt_test, registers_32a, "-4@%eax -4@%ebx -4@%ecx -4@%edx -4@%esi -4@%edi -4@%ebp"
	site gousdt_test, registers_16a, "-2@%ax -2@%bx -2@%cx -2@%dx -2@%si -2@%di -2@%bp"
	site gousdt_test, registers_8a, "1@%al 1@%bl 1@%cl 1@%dl"
	site gousdt_test, registers_high, "1@%ah -1@%bh 1@%ch -1@%dh"
	pop %edi
	pop %esi
	pop %ebp
	pop %ebx
	ret
	.size fire_registers_assembly, . - fire_registers_assembly

#endif

	.section .note.GNU-stack, "", %progbits
