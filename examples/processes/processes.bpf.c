/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Counts the hits of each process at a place of its own, which the cookie says. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* As many as there are processes: the loader says it. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, __u64);
} hits SEC(".maps");

SEC("usdt")
int on_hit(struct pt_regs *ctx)
{
	__u32 process = bpf_usdt_cookie(ctx);
	__u64 *count = bpf_map_lookup_elem(&hits, &process);

	if (count)
		__sync_fetch_and_add(count, 1);
	return 0;
}
