/* SPDX-License-Identifier: BSD-2-Clause */

/* Probes that count who is interested in them. */

#include <stdint.h>

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#include "groups.h"
#include "site.h"
#include "values.h"

/* In a section of its own that is in the file: a semaphore in .bss has no place
   in the file that the kernel could be told. */
#define SEMAPHORE(name)                                                        \
	__attribute__((section(".probes"), visibility("hidden"), used))        \
	volatile unsigned short name

SEMAPHORE(gousdt_test_counted_semaphore);
SEMAPHORE(gousdt_test_guarded_semaphore);
SEMAPHORE(gousdt_test_split_first);
SEMAPHORE(gousdt_test_split_second);

/* Fires whatever the semaphore says. */
ONCE static const char *fire_counted(void)
{
	IN_REGISTER(int32_t, s32, S32);
	ON_STACK(unsigned long, word, UWORD);

	STAP_PROBE2(gousdt_test, counted, s32, word);
	return 0;
}

/* Fires only for those who wait for it, as programs do whose arguments are
   expensive. */
ONCE static const char *fire_guarded(void)
{
	IN_REGISTER(int32_t, s32, S32);

	if (gousdt_test_guarded_semaphore)
		STAP_PROBE1(gousdt_test, guarded, s32);
	return 0;
}

/* One name, two sites, each with its own semaphore. */
ONCE static const char *fire_split(void)
{
	__asm__ volatile(SITE("gousdt_test", "split", "gousdt_test_split_first", "-4@%0")
			 :: "r"(S32));
	__asm__ volatile(SITE("gousdt_test", "split", "gousdt_test_split_second", "4@%0")
			 :: "r"(U32));
	return 0;
}

const struct group groups_semaphores[] = {
	{"counted", fire_counted, {&gousdt_test_counted_semaphore, 0}},
	{"guarded", fire_guarded, {&gousdt_test_guarded_semaphore, 0}},
	{"split", fire_split, {&gousdt_test_split_first, &gousdt_test_split_second}},
	{0, 0, {0}},
};
