/* SPDX-License-Identifier: BSD-2-Clause */

/* A program without probes. */

	.globl _start
_start:
	nop
