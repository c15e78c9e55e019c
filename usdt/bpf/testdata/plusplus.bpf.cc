/* SPDX-License-Identifier: BSD-2-Clause */

/* A program in C++. The test defines the helpers by CXX_HELPER(number). */
struct helper {
	long number;
	template <typename function> operator function *() const
	{
		return (function *)number;
	}
};
#define CXX_HELPER(n) helper{n}

#include <linux/bpf.h>

extern "C" {
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

long sum;

SEC("usdt")
int BPF_USDT(plusplus, const char *text, int number, bool flag, unsigned char small)
{
	long first = 0;

	bpf_usdt_arg(ctx, 0, &first);
	sum = first - (long)text + number + flag + small;
	return 0;
}
}
