/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Samples what programs allocate, by the probes otel_memory:alloc(pointer, size)
   and otel_memory:free(pointer), and adds it up by the stack that allocated it. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* The mean number of bytes from one sample to the next, less than 2^31. */
const volatile __u64 period = 512 << 10;

/* Samples without a stack, and those that did not fit into a map. */
__u64 lost;

#define MAX_FRAMES 127 /* what the kernel takes by default, perf_event_max_stack */

/* Who allocated. */
struct site {
	__u32 pid;
	__s32 stack; /* key in stacks */
};

/* What the samples stand for. */
struct totals {
	__u64 allocs, alloc_bytes, frees, free_bytes;
};

struct address {
	__u64 pointer;
	__u64 pid;
};

/* A sampled allocation that has not been freed. */
struct allocation {
	struct site site;
	__u64 objects, bytes;
};

struct {
	__uint(type, BPF_MAP_TYPE_STACK_TRACE);
	__uint(max_entries, 1 << 14);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, MAX_FRAMES * sizeof(__u64));
} stacks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 14);
	__type(key, struct site);
	__type(value, struct totals);
} sites SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1 << 17);
	__type(key, struct address);
	__type(value, struct allocation);
} live SEC(".maps");

/* How many bytes are left until the next sample. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __s64);
} countdown SEC(".maps");

/* The distance between two samples is random, from 1 to twice the period: a program
   that repeats itself would else be sampled at always the same place. */
static __always_inline __s64 distance(void)
{
	return 1 + bpf_get_prandom_u32() % (2 * period - 1);
}

/* Two samples in one allocation are not rare, this many are. */
#define MAX_SAMPLES 8

/* Returns how many bytes an allocation stands for, 0 if it is not sampled. One as
   large as the period always is, and stands for itself. Of the smaller ones, one
   byte in a period is picked, and stands for the period. */
static __always_inline __u64 sample(__u64 size)
{
	__u64 bytes = 0;
	__u32 zero = 0;
	__s64 *left;

	if (size >= period)
		return size;
	left = bpf_map_lookup_elem(&countdown, &zero);
	if (!left || !size)
		return 0;
	if (!*left) /* the first one on this CPU */
		*left = distance();
	*left -= size;
	for (int i = 0; i < MAX_SAMPLES && *left <= 0; i++) {
		*left += distance();
		bytes += period;
	}
	return bytes;
}

static __always_inline void forget(const struct address *address)
{
	struct allocation *allocation = bpf_map_lookup_elem(&live, address);
	struct totals *totals;

	if (!allocation)
		return; /* it was not sampled */
	totals = bpf_map_lookup_elem(&sites, &allocation->site);
	if (totals) {
		__sync_fetch_and_add(&totals->frees, allocation->objects);
		__sync_fetch_and_add(&totals->free_bytes, allocation->bytes);
	}
	bpf_map_delete_elem(&live, address);
}

SEC("usdt")
int BPF_USDT(on_alloc, __u64 pointer, __u64 size)
{
	struct address address = {.pointer = pointer, .pid = bpf_get_current_pid_tgid() >> 32};
	struct allocation allocation = {.bytes = sample(size)};
	struct totals none = {}, *totals;

	if (!allocation.bytes)
		return 0;
	allocation.objects = allocation.bytes / size;
	allocation.site.pid = address.pid;
	/* Without the innermost function: that is the allocator. */
	allocation.site.stack = bpf_get_stackid(ctx, &stacks, BPF_F_USER_STACK | 1);
	if (allocation.site.stack < 0)
		goto out;

	bpf_map_update_elem(&sites, &allocation.site, &none, BPF_NOEXIST);
	totals = bpf_map_lookup_elem(&sites, &allocation.site);
	if (!totals)
		goto out;
	__sync_fetch_and_add(&totals->allocs, allocation.objects);
	__sync_fetch_and_add(&totals->alloc_bytes, allocation.bytes);

	forget(&address); /* what is given out again was freed unseen */
	if (!bpf_map_update_elem(&live, &address, &allocation, BPF_ANY))
		return 0;
out:
	__sync_fetch_and_add(&lost, 1);
	return 0;
}

SEC("usdt")
int BPF_USDT(on_free, __u64 pointer)
{
	struct address address = {.pointer = pointer, .pid = bpf_get_current_pid_tgid() >> 32};

	forget(&address);
	return 0;
}
