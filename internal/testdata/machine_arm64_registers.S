/* SPDX-License-Identifier: BSD-2-Clause */

/* All general registers of arm64 but the stack pointer.
   Register number i, in the order of the arguments below, holds
   0xf1e2d3c4b5a69700 + i * 0x0101. */

#include "site.h"

#if defined(__aarch64__)

	.text
	.globl fire_registers_assembly
	.hidden fire_registers_assembly
	.type fire_registers_assembly, %function
fire_registers_assembly:
	stp x29, x30, [sp, -112]!
	stp x19, x20, [sp, 16]
	stp x21, x22, [sp, 32]
	stp x23, x24, [sp, 48]
	stp x25, x26, [sp, 64]
	stp x27, x28, [sp, 80]
	str x18, [sp, 96]
	ldr x0, =0xf1e2d3c4b5a69700
	ldr x1, =0xf1e2d3c4b5a69801
	ldr x2, =0xf1e2d3c4b5a69902
	ldr x3, =0xf1e2d3c4b5a69a03
	ldr x4, =0xf1e2d3c4b5a69b04
	ldr x5, =0xf1e2d3c4b5a69c05
	ldr x6, =0xf1e2d3c4b5a69d06
	ldr x7, =0xf1e2d3c4b5a69e07
	ldr x8, =0xf1e2d3c4b5a69f08
	ldr x9, =0xf1e2d3c4b5a6a009
	ldr x10, =0xf1e2d3c4b5a6a10a
	ldr x11, =0xf1e2d3c4b5a6a20b
	ldr x12, =0xf1e2d3c4b5a6a30c
	ldr x13, =0xf1e2d3c4b5a6a40d
	ldr x14, =0xf1e2d3c4b5a6a50e
	ldr x15, =0xf1e2d3c4b5a6a60f
	ldr x16, =0xf1e2d3c4b5a6a710
	ldr x17, =0xf1e2d3c4b5a6a811
	ldr x18, =0xf1e2d3c4b5a6a912
	ldr x19, =0xf1e2d3c4b5a6aa13
	ldr x20, =0xf1e2d3c4b5a6ab14
	ldr x21, =0xf1e2d3c4b5a6ac15
	ldr x22, =0xf1e2d3c4b5a6ad16
	ldr x23, =0xf1e2d3c4b5a6ae17
	ldr x24, =0xf1e2d3c4b5a6af18
	ldr x25, =0xf1e2d3c4b5a6b019
	ldr x26, =0xf1e2d3c4b5a6b11a
	ldr x27, =0xf1e2d3c4b5a6b21b
	ldr x28, =0xf1e2d3c4b5a6b31c
	ldr x29, =0xf1e2d3c4b5a6b41d
	ldr x30, =0xf1e2d3c4b5a6b51e
	site gousdt_test, registers_64a, "8@x0 8@x1 8@x2 8@x3 8@x4 8@x5 8@x6 8@x7 8@x8 8@x9 8@x10 8@x11"
	site gousdt_test, registers_64b, "8@x12 8@x13 8@x14 8@x15 8@x16 8@x17 8@x18 8@x19 8@x20 8@x21 8@x22 8@x23"
	site gousdt_test, registers_64c, "8@x24 8@x25 8@x26 8@x27 8@x28 8@x29 8@x30"
	site gousdt_test, registers_32a, "-4@w0 -4@w1 -4@w2 -4@w3 -4@w4 -4@w5 -4@w6 -4@w7 -4@w8 -4@w9 -4@w10 -4@w11"
	site gousdt_test, registers_32b, "-4@w12 -4@w13 -4@w14 -4@w15 -4@w16 -4@w17 -4@w18 -4@w19 -4@w20 -4@w21 -4@w22 -4@w23"
	site gousdt_test, registers_32c, "-4@w24 -4@w25 -4@w26 -4@w27 -4@w28 -4@w29 -4@w30"
	site gousdt_test, registers_16a, "-2@w0 -2@w1 -2@w2 -2@w3 -2@w4 -2@w5 -2@w6 -2@w7 -2@w8 -2@w9 -2@w10 -2@w11"
	site gousdt_test, registers_16b, "-2@w12 -2@w13 -2@w14 -2@w15 -2@w16 -2@w17 -2@w18 -2@w19 -2@w20 -2@w21 -2@w22 -2@w23"
	site gousdt_test, registers_16c, "-2@w24 -2@w25 -2@w26 -2@w27 -2@w28 -2@w29 -2@w30"
	site gousdt_test, registers_8a, "1@w0 1@w1 1@w2 1@w3 1@w4 1@w5 1@w6 1@w7 1@w8 1@w9 1@w10 1@w11"
	site gousdt_test, registers_8b, "1@w12 1@w13 1@w14 1@w15 1@w16 1@w17 1@w18 1@w19 1@w20 1@w21 1@w22 1@w23"
	site gousdt_test, registers_8c, "1@w24 1@w25 1@w26 1@w27 1@w28 1@w29 1@w30"
	ldr x18, [sp, 96]
	ldp x19, x20, [sp, 16]
	ldp x21, x22, [sp, 32]
	ldp x23, x24, [sp, 48]
	ldp x25, x26, [sp, 64]
	ldp x27, x28, [sp, 80]
	ldp x29, x30, [sp], 112
	ret
	.ltorg
	.size fire_registers_assembly, . - fire_registers_assembly

#endif

	.section .note.GNU-stack, "", %progbits
