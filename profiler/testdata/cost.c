/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * For each line, such as "hit 100" or "allocate 100": passes a probe below ten
 * functions, or allocates and frees 4 kB, as often as it says, and prints how many
 * nanoseconds that took.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sdt.h>
#include <time.h>

__attribute__((noinline)) int nested(int depth, long i)
{
	if (depth)
		return nested(depth - 1, i) + 1;
	STAP_PROBE1(gousdt_test, cost, i);
	return 0;
}

static long long now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000000000ll + t.tv_nsec;
}

int main(void)
{
	char what[16];
	long n;

	while (scanf("%15s %ld", what, &n) == 2) {
		long long began = now();

		for (long i = 0; i < n; i++) {
			if (strcmp(what, "hit")) {
				void *volatile memory = malloc(4096);

				free(memory);
			} else {
				nested(9, i);
			}
		}
		printf("%lld\n", now() - began);
		fflush(stdout);
	}
	return 0;
}
