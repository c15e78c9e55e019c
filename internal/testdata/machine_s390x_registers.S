/* SPDX-License-Identifier: BSD-2-Clause */

/* All general registers of s390x but the stack pointer, r15.
   Register number i, in the order of the arguments below, holds
   0xf1e2d3c4b5a69700 + i * 0x0101. */

#include "site.h"

#if defined(__s390x__)

	.text
	.globl fire_registers_assembly
	.hidden fire_registers_assembly
	.type fire_registers_assembly, %function
fire_registers_assembly:
	stmg %r6, %r15, 48(%r15)
	llihf %r0, 0xf1e2d3c4
	oilf %r0, 0xb5a69700
	llihf %r1, 0xf1e2d3c4
	oilf %r1, 0xb5a69801
	llihf %r2, 0xf1e2d3c4
	oilf %r2, 0xb5a69902
	llihf %r3, 0xf1e2d3c4
	oilf %r3, 0xb5a69a03
	llihf %r4, 0xf1e2d3c4
	oilf %r4, 0xb5a69b04
	llihf %r5, 0xf1e2d3c4
	oilf %r5, 0xb5a69c05
	llihf %r6, 0xf1e2d3c4
	oilf %r6, 0xb5a69d06
	llihf %r7, 0xf1e2d3c4
	oilf %r7, 0xb5a69e07
	llihf %r8, 0xf1e2d3c4
	oilf %r8, 0xb5a69f08
	llihf %r9, 0xf1e2d3c4
	oilf %r9, 0xb5a6a009
	llihf %r10, 0xf1e2d3c4
	oilf %r10, 0xb5a6a10a
	llihf %r11, 0xf1e2d3c4
	oilf %r11, 0xb5a6a20b
	llihf %r12, 0xf1e2d3c4
	oilf %r12, 0xb5a6a30c
	llihf %r13, 0xf1e2d3c4
	oilf %r13, 0xb5a6a40d
	llihf %r14, 0xf1e2d3c4
	oilf %r14, 0xb5a6a50e
	site gousdt_test, registers_64a, "8@%r0 8@%r1 8@%r2 8@%r3 8@%r4 8@%r5 8@%r6 8@%r7 8@%r8 8@%r9 8@%r10 8@%r11"
	site gousdt_test, registers_64b, "8@%r12 8@%r13 8@%r14"
	site gousdt_test, registers_32a, "-4@%r0 -4@%r1 -4@%r2 -4@%r3 -4@%r4 -4@%r5 -4@%r6 -4@%r7 -4@%r8 -4@%r9 -4@%r10 -4@%r11"
	site gousdt_test, registers_32b, "-4@%r12 -4@%r13 -4@%r14"
	site gousdt_test, registers_16a, "-2@%r0 -2@%r1 -2@%r2 -2@%r3 -2@%r4 -2@%r5 -2@%r6 -2@%r7 -2@%r8 -2@%r9 -2@%r10 -2@%r11"
	site gousdt_test, registers_16b, "-2@%r12 -2@%r13 -2@%r14"
	site gousdt_test, registers_8a, "1@%r0 1@%r1 1@%r2 1@%r3 1@%r4 1@%r5 1@%r6 1@%r7 1@%r8 1@%r9 1@%r10 1@%r11"
	site gousdt_test, registers_8b, "1@%r12 1@%r13 1@%r14"
	lmg %r6, %r15, 48(%r15)
	br %r14
	.size fire_registers_assembly, . - fire_registers_assembly

#endif

	.section .note.GNU-stack, "", %progbits
