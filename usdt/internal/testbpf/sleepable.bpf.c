/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* A program that may fault pages in. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 hits;
__s64 last[3];
/* What reading eight bytes behind the first argument gave, and the bytes. */
__s64 copy_error;
__u64 copied;

SEC("usdt.s")
int BPF_USDT(sleeper, const void *pointer, long second, long third)
{
	__u64 bytes = 0;

	copy_error = bpf_copy_from_user(&bytes, sizeof(bytes), pointer);
	copied = bytes;
	last[0] = (long)pointer;
	last[1] = second;
	last[2] = third;
	__sync_fetch_and_add(&hits, 1);
	return 0;
}
