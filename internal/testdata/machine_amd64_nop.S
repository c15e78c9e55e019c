/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Sites followed by a nop that some kernels replace by a call.
 *
 * Each function is a leaf: it keeps a pattern in its red zone, the 128 bytes
 * below the stack pointer, passes the site and answers 0 if the pattern is still
 * there. A call made in place of the nop, without care for the red zone,
 * overwrites it.
 */

#include "site.h"

#if defined(__x86_64__)

/* bytes is what follows the one-byte nop. */
.macro red_zone name:req, bytes:vararg
	.text
	.balign 16
	.globl fire_red_zone_\name
	.hidden fire_red_zone_\name
	.type fire_red_zone_\name, %function
fire_red_zone_\name:
	movabs $0x5a5a5a5aa5a5a5a5, %rax
	.irp offset, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128
	mov %rax, -\offset(%rsp)
	.endr
	.balign 16
	site gousdt_test, \name, "-4@%edi -4@gousdt_array+4(%rip) -4@-8(%rsp)"
	.ifnb \bytes
	.byte \bytes
	.endif
	xor %edx, %edx
	.irp offset, 8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96, 104, 112, 120, 128
	mov -\offset(%rsp), %rcx
	xor %rax, %rcx
	or %rcx, %rdx
	.endr
	xor %eax, %eax
	test %rdx, %rdx
	setne %al
	ret
	.size fire_red_zone_\name, . - fire_red_zone_\name
.endm

	red_zone nop
	red_zone nop10, 0x66, 0x2e, 0x0f, 0x1f, 0x84, 0x00, 0x00, 0x00, 0x00, 0x00
	red_zone nop5, 0x0f, 0x1f, 0x44, 0x00, 0x00

#endif

	.section .note.GNU-stack, "", %progbits
