/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The library libheap.so: an allocator that tells a memory profiler what it gives
 * out and takes back.
 */

#include <stdlib.h>
#include <sys/sdt.h>

#pragma GCC visibility push(default)

void *heap_alloc(size_t size)
{
	void *memory = malloc(size);

	STAP_PROBE2(otel_memory, alloc, memory, size);
	return memory;
}

void heap_free(void *memory)
{
	STAP_PROBE1(otel_memory, free, memory);
	free(memory);
}
