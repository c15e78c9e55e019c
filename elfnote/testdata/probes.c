/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A program without a C library, whose probes the tests of package elfnote
 * list. See the Makefile for the files made of it.
 */

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#define SEMAPHORE(name) \
	__extension__ unsigned short name##_semaphore \
	__attribute__((unused, section(".probes"), visibility("hidden")))

SEMAPHORE(elf_plain);
SEMAPHORE(elf_places);
SEMAPHORE(elf_copies);
SEMAPHORE(elf_guarded);
/* Its semaphore is in the bss, so that its note is malformed. */
unsigned short elf_unplaced_semaphore __attribute__((visibility("hidden")));


void without_semaphore(short value);

long counter = 1;
long table[8] = {1};

/* Inlined twice: two sites of one probe. */
static inline __attribute__((always_inline)) void copied(long value)
{
	STAP_PROBE1(elf, copies, value);
}

__attribute__((noinline)) long work(long first, int second, char third)
{
	volatile long local = first;

	STAP_PROBE(elf, plain);
	STAP_PROBE5(elf, places, first, second, third, local, table[first & 7]);
	copied(first);
	copied(17);
	if (__builtin_expect(elf_guarded_semaphore, 0))
		STAP_PROBE2(elf, guarded, counter, -5);
	STAP_PROBE(elf, unplaced);
	without_semaphore((short)second);
	return local + counter;
}

void _start(void)
{
	counter += work(counter, 2, 3);
	for (;;)
		;
}
