/* SPDX-License-Identifier: BSD-2-Clause */

/* Another file of the object that reader.bpf.c is in. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

__s64 sum;

SEC("usdt")
int BPF_USDT(read_sum, long a, long b)
{
	long c;

	if (bpf_usdt_arg(ctx, 2, &c))
		return 0;
	sum = a + b + c;
	return 0;
}
