/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Notes that no compiler makes: names that would drive a terminal, arguments of
 * every kind, and notes that are broken.
 */

.macro NOTE location, semaphore, provider, name, arguments
	.pushsection .note.stapsdt, "", "note"
	.balign 4
	.4byte 992f - 991f, 994f - 993f, 3
991:	.asciz "stapsdt"
992:	.balign 4
993:	.8byte \location, 0, \semaphore
	.asciz "\provider"
	.asciz "\name"
	.asciz "\arguments"
994:	.balign 4
	.popsection
.endm

	.data
	.balign 2
semaphore:
	.2byte 0
	.balign 8
counter:
	.8byte 0

	.text
	.globl _start
_start:
1:	nop
	NOTE 1b, 0, "evil\033[2J\033]0;title\007", "new\nline\ttab", "8@%rax"
2:	nop
	NOTE 2b, 0, "ns::class", "it's \"quoted\"", "-4@%eax"
3:	nop
	NOTE 3b, semaphore, "b\377d", "n\303\257\303", "4@\033[2J\376"
4:	nop
	NOTE 4b, 0, "every", "kind", "-4@-20(%rbp) 8f@8(%rsp) 1@%ah 2@$-1 -1@$-1 8@$18446744073709551615 8@(%rdi,%rcx,4) 8f@%xmm0 16@(%rdi) 4@.L5(%rip) 8@counter(%rip) 8@nowhere(%rip) 8@"
5:	nop
	NOTE 0x10, 0, "broken", "location", ""
	NOTE 5b, 5b, "broken", "semaphore", ""
	NOTE 5b, 0, "fine", "again", ""

	.pushsection .note.stapsdt, "", "note"
	.balign 4
	.4byte 8, 28, 3
	.asciz "stapsdt"
	.8byte 5b, 0, 0
	.ascii "nope" /* not terminated */
	.popsection

	NOTE 5b, 0, "other", "again", ""
