/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/*
 * Programs that name their probe in their section. The path is replaced by
 * the test, through ProgramSpec.AttachTo.
 */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Hits, and the first argument of the last one, of each program. */
__u64 hits[3];
__s64 last[3];

SEC("usdt/TARGET:gousdt:first")
int BPF_USDT(section_first, long a)
{
	__sync_fetch_and_add(&hits[0], 1);
	last[0] = a;
	return 0;
}

SEC("usdt/TARGET:gousdt:second")
int BPF_USDT(section_second, long a)
{
	__sync_fetch_and_add(&hits[1], 1);
	last[1] = a;
	return 0;
}

/* Names nothing, so it is not attached by itself. */
SEC("usdt")
int BPF_USDT(section_none, long a)
{
	__sync_fetch_and_add(&hits[2], 1);
	last[2] = a;
	return 0;
}
