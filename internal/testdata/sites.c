/* SPDX-License-Identifier: BSD-2-Clause */

/* Probes with many sites. */

#include <stdint.h>
#include <sys/sdt.h>

#include "groups.h"

#define TEN(x) x x x x x x x x x x

/* One probe in a function that is inlined: every caller has its own site, with
   the arguments where that caller happens to have them. */
__attribute__((always_inline)) static inline void inlined(int number, long value)
{
	STAP_PROBE2(gousdt_test, inlined, number, value);
}

ONCE static void inlined_parameter(long value)
{
	inlined(2, value);
}

ONCE static void inlined_memory(const int *number, const long *value)
{
	inlined(number[3], value[1]);
}

ONCE static void inlined_index(const int *number, const long *value, unsigned long index)
{
	inlined(number[index], value[index]);
}

ONCE static const char *fire_inlined(void)
{
	static volatile int numbers[4] = {0, 0, 4, 3};
	static volatile long values[4] = {0, -103, -104, 0};
	volatile int number = 5;
	volatile long value = -105;

	inlined(1, -101);
	inlined_parameter(-102);
	inlined_memory((const int *)numbers, (const long *)values);
	inlined_index((const int *)numbers, (const long *)values, 2);
	inlined(number, value);
	return 0;
}

/* 400 sites with the same arguments. */
ONCE static const char *fire_many(void)
{
	TEN(TEN(STAP_PROBE1(gousdt_test, many, 42); STAP_PROBE1(gousdt_test, many, 42);
		STAP_PROBE1(gousdt_test, many, 42); STAP_PROBE1(gousdt_test, many, 42);))
	return 0;
}

/* 300 sites, all with different arguments: 0, 1, ... 299. The numbers are put
   together from their digits. */
#define SPEC(n) STAP_PROBE1(gousdt_test, specs, n);
#define TENS(n)                                                                \
	SPEC(n##0) SPEC(n##1) SPEC(n##2) SPEC(n##3) SPEC(n##4)                 \
	SPEC(n##5) SPEC(n##6) SPEC(n##7) SPEC(n##8) SPEC(n##9)
#define HUNDREDS(n)                                                            \
	TENS(n##0) TENS(n##1) TENS(n##2) TENS(n##3) TENS(n##4)                 \
	TENS(n##5) TENS(n##6) TENS(n##7) TENS(n##8) TENS(n##9)

ONCE static const char *fire_specs(void)
{
	TENS() TENS(1) TENS(2) TENS(3) TENS(4) TENS(5) TENS(6) TENS(7) TENS(8) TENS(9)
	HUNDREDS(1) HUNDREDS(2)
	return 0;
}

const struct group groups_sites[] = {
	{"inlined", fire_inlined, {0}},
	{"many", fire_many, {0}},
	{"specs", fire_specs, {0}},
	{0, 0, {0}},
};
