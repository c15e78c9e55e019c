/* SPDX-License-Identifier: BSD-2-Clause */

/* Programs that keep what the last hit gave them, in global variables. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define ARGUMENTS (BPF_USDT_MAX_ARG_CNT + 2)

/* By one call for each argument. */
__s64 single[ARGUMENTS];
__s32 errors[ARGUMENTS];
__s32 sizes[ARGUMENTS];
__u64 addresses[ARGUMENTS];
__s32 address_errors[ARGUMENTS];
__s64 cookie;
__s32 count;

#ifdef BPF_USDT_SLEEPABLE
#define SECTION SEC("usdt.s")
#else
#define SECTION SEC("usdt")
#endif

SECTION
int read_single(struct pt_regs *ctx)
{
	for (int i = 0; i < ARGUMENTS; i++) {
		/* Not zero: an error has to clear it. */
		long value = 0x5555555555555555;

		errors[i] = bpf_usdt_arg(ctx, i, &value);
		sizes[i] = bpf_usdt_arg_size(ctx, i);
		single[i] = value;
		address_errors[i] = bpf_usdt_arg_address(ctx, i, &addresses[i]);
	}
	/* A number that no signed or narrowed comparison lets pass. */
	long value = 1;
	int error = bpf_usdt_arg(ctx, 0xffffffff00000000, &value);
	if ((error != -ENOENT && error != -ESRCH) || value)
		errors[0] = 1;
	cookie = bpf_usdt_cookie(ctx);
	count = bpf_usdt_arg_cnt(ctx);
	return 0;
}

__s64 all[BPF_USDT_MAX_ARG_CNT];

SECTION
int BPF_USDT(read_all, long a, long b, long c, long d, long e, long f, long g,
	     long h, long i, long j, long k, long l)
{
	all[0] = a;
	all[1] = b;
	all[2] = c;
	all[3] = d;
	all[4] = e;
	all[5] = f;
	all[6] = g;
	all[7] = h;
	all[8] = i;
	all[9] = j;
	all[10] = k;
	all[11] = l;
	return 0;
}

/* The conversion to the types of parameters. */
__s64 narrowed[5];

SECTION
int BPF_USDT(read_narrowed, int a, short b, unsigned char c, void *d, _Bool e)
{
	narrowed[0] = a;
	narrowed[1] = b;
	narrowed[2] = c;
	narrowed[3] = (long)d;
	narrowed[4] = e;
	return 0;
}

__u64 bare_hits;

SECTION
int BPF_USDT(read_nothing)
{
	__sync_fetch_and_add(&bare_hits, 1);
	return 0;
}
