/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A program that passes the nop at "site" once for each byte it reads, with
 * known values in its registers, and then writes a byte.
 *
 *	page	0x10000000, bytes 0x00 0x01 .. 0xff, again and again
 *	end	0x10001000, not mapped
 *	empty	0x20000000, mapped but never touched
 */
#include <asm/unistd.h>
#include <linux/mman.h>

	.globl	_start, site
	.text
_start:
	mov	$0x10000000, %edi
	call	map
	xor	%eax, %eax
fill:	mov	%al, 0x10000000(%rax)
	inc	%eax
	cmp	$4096, %eax
	jne	fill
	mov	$0x20000000, %edi
	call	map

next:	mov	$__NR_read, %eax
	xor	%edi, %edi
	mov	$byte, %esi
	mov	$1, %edx
	syscall
	cmp	$1, %rax
	jne	exit

	movabs	$0x8182838485868788, %rax
	movabs	$0x1112131415161718, %rbx
	mov	$0x10000000, %ecx		/* page */
	mov	$0x10001000, %edx		/* end */
	mov	$0x20000000, %esi		/* empty */
	mov	$5, %edi
	mov	$-5, %rbp
	movabs	$0x0000000110000000, %r8	/* page, with a bit 32 */
	mov	$0xfffffff0, %r9d
	movabs	$0x1010101010101010, %r10
	mov	$11, %r11d
	mov	$-12, %r12
	mov	$13, %r13d
	mov	$14, %r14d
	mov	$15, %r15d
site:	nop

	mov	$__NR_write, %eax
	mov	$1, %edi
	mov	$byte, %esi
	mov	$1, %edx
	syscall
	jmp	next

exit:	mov	$__NR_exit, %eax
	xor	%edi, %edi
	syscall

/* Map a page at %rdi. */
map:	mov	$__NR_mmap, %eax
	mov	$4096, %esi
	mov	$3, %edx			/* read, write */
	mov	$(MAP_PRIVATE + MAP_FIXED + MAP_ANONYMOUS), %r10d
	mov	$-1, %r8
	xor	%r9d, %r9d
	syscall
	ret

	.bss
byte:	.skip	1

	.section .note.GNU-stack, "", @progbits
