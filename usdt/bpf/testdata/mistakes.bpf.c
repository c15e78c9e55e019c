/* SPDX-License-Identifier: BSD-2-Clause */

/* Compiles, but for the mistakes that a test asks for. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

#ifdef THIRTEEN
SEC("usdt")
int BPF_USDT(thirteen, int a, int b, int c, int d, int e, int f, int g, int h,
	     int i, int j, int k, int l, int m)
{
	return 0;
}
#endif
