/* SPDX-License-Identifier: BSD-2-Clause */

/* A program that goes on in another one, of a section for uprobes. */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} programs SEC(".maps");

__u64 hits[2];
__s64 first, after;

SEC("usdt")
int BPF_USDT(entry, long a)
{
	hits[0]++;
	first = a;
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

SEC("uprobe")
int next(struct pt_regs *ctx)
{
	long a = 0;

	hits[1]++;
	bpf_usdt_arg(ctx, 0, &a);
	after = a;
	return 0;
}
