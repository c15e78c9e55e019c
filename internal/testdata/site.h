/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Sites written by hand.
 *
 * sys/sdt.h leaves the place of an argument to the compiler. Where a test needs
 * one particular place, or a text that no compiler writes, the note is written
 * here word by word.
 *
 * In C, inside an asm statement (operands as usual, a plain % is written %%):
 *
 *     __asm__ volatile(SITE("gousdt_test", "name", "0", "-4@%0") :: "r"(value));
 *
 * In assembly:
 *
 *     site gousdt_test, name, "8@%rax 4@%ebx"
 *
 * A note records where the section .stapsdt.base is, so that a reader notices
 * when the file has been moved to other addresses later. All files of a program
 * share that one byte.
 */

#ifndef GOUSDT_SITE_H
#define GOUSDT_SITE_H

#ifdef __ASSEMBLER__

/* note describes the site at label; site is a nop with its note. */
.macro note label:req, provider:req, name:req, arguments, semaphore=0
	.pushsection .note.stapsdt, "", %note
	.balign 4
	.4byte 8, 7702f - 7701f, 3
	.asciz "stapsdt"
7701:
#if __SIZEOF_POINTER__ == 8
	.8byte \label, _.stapsdt.base, \semaphore
#else
	.4byte \label, _.stapsdt.base, \semaphore
#endif
	.asciz "\provider"
	.asciz "\name"
	.asciz "\arguments"
7702:	.balign 4
	.popsection
	.ifndef _.stapsdt.base
	.pushsection .stapsdt.base, "aG", %progbits, .stapsdt.base, comdat
	.weak _.stapsdt.base
	.hidden _.stapsdt.base
_.stapsdt.base:
	.space 1
	.popsection
	.endif
.endm

.macro site provider:req, name:req, arguments, semaphore=0
#if defined(__s390x__)
7700:	nop 0
#else
7700:	nop
#endif
	note 7700b, \provider, \name, "\arguments", \semaphore
.endm

#else

#if defined(__s390x__)
#define SITE_NOP "nop 0"
#else
#define SITE_NOP "nop"
#endif

#if __SIZEOF_POINTER__ == 8
#define SITE_ADDRESSES ".8byte "
#else
#define SITE_ADDRESSES ".4byte "
#endif

#define NOTE_BASE(base, label, provider, name, semaphore, arguments)           \
	".pushsection .note.stapsdt, \"\", %%note\n"                           \
	".balign 4\n"                                                          \
	".4byte 8, 7702f - 7701f, 3\n"                                         \
	".asciz \"stapsdt\"\n"                                                 \
	"7701: " SITE_ADDRESSES label ", " base ", " semaphore "\n"            \
	".asciz \"" provider "\"\n"                                            \
	".asciz \"" name "\"\n"                                                \
	".asciz \"" arguments "\"\n"                                           \
	"7702: .balign 4\n"                                                    \
	".popsection\n"

#define NOTE(label, provider, name, semaphore, arguments)                      \
	NOTE_BASE("_.stapsdt.base", label, provider, name, semaphore, arguments) \
	".ifndef _.stapsdt.base\n"                                             \
	".pushsection .stapsdt.base, \"aG\", %%progbits, .stapsdt.base, comdat\n" \
	".weak _.stapsdt.base\n"                                               \
	".hidden _.stapsdt.base\n"                                             \
	"_.stapsdt.base: .space 1\n"                                           \
	".popsection\n"                                                        \
	".endif\n"

#define SITE(provider, name, semaphore, arguments)                             \
	"7700: " SITE_NOP "\n"                                                 \
	NOTE("7700b", provider, name, semaphore, arguments)

#endif

#endif
