/* SPDX-License-Identifier: BSD-2-Clause */

/* All general registers of riscv64 but the stack pointer.
   Register number i, in the order of the arguments below, holds
   0xf1e2d3c4b5a69700 + i * 0x0101. */

#include "site.h"

#if defined(__riscv) && __riscv_xlen == 64

	.text
	.globl fire_registers_assembly
	.hidden fire_registers_assembly
	.type fire_registers_assembly, %function
fire_registers_assembly:
	.option push
	.option norelax
	addi sp, sp, -128
	sd ra, 0(sp)
	sd gp, 8(sp)
	sd tp, 16(sp)
	sd s0, 24(sp)
	sd s1, 32(sp)
	sd s2, 40(sp)
	sd s3, 48(sp)
	sd s4, 56(sp)
	sd s5, 64(sp)
	sd s6, 72(sp)
	sd s7, 80(sp)
	sd s8, 88(sp)
	sd s9, 96(sp)
	sd s10, 104(sp)
	sd s11, 112(sp)
	li ra, 0xf1e2d3c4b5a69700
	li gp, 0xf1e2d3c4b5a69801
	li tp, 0xf1e2d3c4b5a69902
	li t0, 0xf1e2d3c4b5a69a03
	li t1, 0xf1e2d3c4b5a69b04
	li t2, 0xf1e2d3c4b5a69c05
	li s0, 0xf1e2d3c4b5a69d06
	li s1, 0xf1e2d3c4b5a69e07
	li a0, 0xf1e2d3c4b5a69f08
	li a1, 0xf1e2d3c4b5a6a009
	li a2, 0xf1e2d3c4b5a6a10a
	li a3, 0xf1e2d3c4b5a6a20b
	li a4, 0xf1e2d3c4b5a6a30c
	li a5, 0xf1e2d3c4b5a6a40d
	li a6, 0xf1e2d3c4b5a6a50e
	li a7, 0xf1e2d3c4b5a6a60f
	li s2, 0xf1e2d3c4b5a6a710
	li s3, 0xf1e2d3c4b5a6a811
	li s4, 0xf1e2d3c4b5a6a912
	li s5, 0xf1e2d3c4b5a6aa13
	li s6, 0xf1e2d3c4b5a6ab14
	li s7, 0xf1e2d3c4b5a6ac15
	li s8, 0xf1e2d3c4b5a6ad16
	li s9, 0xf1e2d3c4b5a6ae17
	li s10, 0xf1e2d3c4b5a6af18
	li s11, 0xf1e2d3c4b5a6b019
	li t3, 0xf1e2d3c4b5a6b11a
	li t4, 0xf1e2d3c4b5a6b21b
	li t5, 0xf1e2d3c4b5a6b31c
	li t6, 0xf1e2d3c4b5a6b41d
	site gousdt_test, registers_64a, "8@ra 8@gp 8@tp 8@t0 8@t1 8@t2 8@s0 8@s1 8@a0 8@a1 8@a2 8@a3"
	site gousdt_test, registers_64b, "8@a4 8@a5 8@a6 8@a7 8@s2 8@s3 8@s4 8@s5 8@s6 8@s7 8@s8 8@s9"
	site gousdt_test, registers_64c, "8@s10 8@s11 8@t3 8@t4 8@t5 8@t6"
	site gousdt_test, registers_32a, "-4@ra -4@gp -4@tp -4@t0 -4@t1 -4@t2 -4@s0 -4@s1 -4@a0 -4@a1 -4@a2 -4@a3"
	site gousdt_test, registers_32b, "-4@a4 -4@a5 -4@a6 -4@a7 -4@s2 -4@s3 -4@s4 -4@s5 -4@s6 -4@s7 -4@s8 -4@s9"
	site gousdt_test, registers_32c, "-4@s10 -4@s11 -4@t3 -4@t4 -4@t5 -4@t6"
	site gousdt_test, registers_16a, "-2@ra -2@gp -2@tp -2@t0 -2@t1 -2@t2 -2@s0 -2@s1 -2@a0 -2@a1 -2@a2 -2@a3"
	site gousdt_test, registers_16b, "-2@a4 -2@a5 -2@a6 -2@a7 -2@s2 -2@s3 -2@s4 -2@s5 -2@s6 -2@s7 -2@s8 -2@s9"
	site gousdt_test, registers_16c, "-2@s10 -2@s11 -2@t3 -2@t4 -2@t5 -2@t6"
	site gousdt_test, registers_8a, "1@ra 1@gp 1@tp 1@t0 1@t1 1@t2 1@s0 1@s1 1@a0 1@a1 1@a2 1@a3"
	site gousdt_test, registers_8b, "1@a4 1@a5 1@a6 1@a7 1@s2 1@s3 1@s4 1@s5 1@s6 1@s7 1@s8 1@s9"
	site gousdt_test, registers_8c, "1@s10 1@s11 1@t3 1@t4 1@t5 1@t6"
	ld ra, 0(sp)
	ld gp, 8(sp)
	ld tp, 16(sp)
	ld s0, 24(sp)
	ld s1, 32(sp)
	ld s2, 40(sp)
	ld s3, 48(sp)
	ld s4, 56(sp)
	ld s5, 64(sp)
	ld s6, 72(sp)
	ld s7, 80(sp)
	ld s8, 88(sp)
	ld s9, 96(sp)
	ld s10, 104(sp)
	ld s11, 112(sp)
	addi sp, sp, 128
	ret
	.option pop
	.size fire_registers_assembly, . - fire_registers_assembly

#endif

	.section .note.GNU-stack, "", %progbits
