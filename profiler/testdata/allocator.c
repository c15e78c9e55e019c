/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * An allocator to preload, which tells a memory profiler of a sample:
 *
 *	otel_memory:alloc(pointer, size, weight)  weight: bytes that this stands for
 *	otel_memory:free(pointer)                 of what was sampled, alone
 *
 *	$ gcc -O2 -shared -fPIC -o allocator.so allocator.c
 *	$ OTEL_MEMORY_PERIOD=65536 LD_PRELOAD=./allocator.so program
 */

#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sdt.h>

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

#define SLOTS (1 << 16)

/* The sampled allocations, in lists by their address. Most lists are empty, which
   a free sees without the lock. */
static struct sampled {
	struct sampled *next;
	void *pointer;
} *sampled[SLOTS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static uint64_t period = 512 << 10;
static __thread int64_t left;
static __thread uint64_t state;

__attribute__((constructor)) static void start(void)
{
	const char *value = getenv("OTEL_MEMORY_PERIOD");

	if (value && atoll(value) > 0)
		period = atoll(value);
}

/* From 1 to twice the period: a program that repeats itself would else be
   sampled at always the same place. */
static int64_t distance(void)
{
	if (!state)
		state = (uintptr_t)&state | 1;
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return 1 + state % (2 * period - 1);
}

static struct sampled **slot(void *pointer)
{
	return &sampled[((uintptr_t)pointer >> 4) * 0x9e3779b1u % SLOTS];
}

static void allocated(void *pointer, size_t size)
{
	struct sampled *added, **list;
	uint64_t weight = 0;

	if (!pointer || !size)
		return;
	if (!left)
		left = distance();
	if (size >= period) {
		weight = size;
	} else {
		for (left -= size; left <= 0; left += distance())
			weight += period;
	}
	if (!weight || !(added = __libc_malloc(sizeof(*added))))
		return;
	added->pointer = pointer;
	list = slot(pointer);
	pthread_mutex_lock(&lock);
	added->next = *list;
	__atomic_store_n(list, added, __ATOMIC_RELEASE);
	pthread_mutex_unlock(&lock);
	STAP_PROBE3(otel_memory, alloc, pointer, size, weight);
}

static void freed(void *pointer)
{
	struct sampled **at = slot(pointer), *found;

	if (!pointer || !__atomic_load_n(at, __ATOMIC_ACQUIRE))
		return;
	pthread_mutex_lock(&lock);
	while (*at && (*at)->pointer != pointer)
		at = &(*at)->next;
	found = *at;
	if (found)
		*at = found->next;
	pthread_mutex_unlock(&lock);
	if (found) {
		STAP_PROBE1(otel_memory, free, pointer);
		__libc_free(found);
	}
}

void *malloc(size_t size)
{
	void *pointer = __libc_malloc(size);

	allocated(pointer, size);
	return pointer;
}

void *calloc(size_t count, size_t size)
{
	void *pointer = __libc_calloc(count, size);

	allocated(pointer, count * size);
	return pointer;
}

void *realloc(void *old, size_t size)
{
	void *pointer;

	freed(old);
	pointer = __libc_realloc(old, size);
	allocated(pointer, size);
	return pointer;
}

void *memalign(size_t alignment, size_t size)
{
	void *pointer = __libc_memalign(alignment, size);

	allocated(pointer, size);
	return pointer;
}

void free(void *pointer)
{
	freed(pointer);
	__libc_free(pointer);
}
