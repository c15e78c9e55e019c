/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Counts the hits of all probes that are on. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 hits;

SEC("usdt")
int BPF_USDT(on_hit)
{
	__sync_fetch_and_add(&hits, 1);
	return 0;
}
