/* SPDX-License-Identifier: BSD-2-Clause */

/* One of two files that are linked into an object. */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__s64 sum;

/* This one is taken, for it comes first. */
__weak __hidden int first_argument(struct pt_regs *ctx)
{
	long value;

	return bpf_usdt_arg(ctx, 0, &value) ? -1 : value;
}

SEC("usdt")
int BPF_USDT(first, long a, long b)
{
	sum = a + b + first_argument(ctx);
	return 0;
}
