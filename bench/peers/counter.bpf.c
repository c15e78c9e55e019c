/* SPDX-License-Identifier: BSD-2-Clause */

/* Counts the hits of a probe of the traced program, for ebpf_exporter. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, unsigned int);
	__type(value, unsigned long long);
} bench_hits SEC(".maps");

SEC("usdt/" TARGET ":bench:registers3_0")
int count(struct pt_regs *ctx)
{
	unsigned int key = 0;
	unsigned long long *hits = bpf_map_lookup_elem(&bench_hits, &key);

	if (hits)
		__sync_fetch_and_add(hits, 1);
	return 0;
}
