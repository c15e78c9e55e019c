/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * For each line: allocates as often as it says, frees most of it, and prints the
 * bytes that were allocated and those that are live.
 */

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

__attribute__((noinline)) void *load_picture(size_t size)
{
	void *volatile memory = malloc(size);

	return memory;
}

__attribute__((noinline)) void serve(long requests, unsigned long *total, unsigned long *live)
{
	static uint64_t state = 88172645463325252ull;

	while (requests--) {
		size_t size;
		void *memory;

		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		size = 4096 + state % 8192;
		memory = load_picture(size);
		*total += size;
		if (state >> 32 & 15)
			free(memory);
		else
			*live += size;
	}
}

int main(void)
{
	unsigned long total = 0, live = 0;
	char line[64];

	while (fgets(line, sizeof(line), stdin)) {
		serve(atol(line), &total, &live);
		printf("%lu %lu\n", total, live);
		fflush(stdout);
	}
	return 0;
}
