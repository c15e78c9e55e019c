/* SPDX-License-Identifier: BSD-2-Clause */

/* A program that may wait for memory. */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u64 hits;
__u64 copied;

SEC("usdt.s")
int BPF_USDT(sleeper, const void *text)
{
	__u64 value = 0;

	hits++;
	bpf_copy_from_user(&value, sizeof(value), text);
	copied = value;
	return 0;
}
