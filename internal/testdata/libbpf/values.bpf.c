/* SPDX-License-Identifier: BSD-2-Clause */

/* Programs that report every argument of a hit. */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* One call for each argument, with the errors and sizes. */
SEC("usdt")
int collect(struct pt_regs *ctx)
{
	struct event *event = reserve(ctx, COLLECT);

	if (!event)
		return 0;
	for (int i = 0; i < ARGUMENTS; i++) {
		/* Not zero: an error has to clear it. */
		long value = 0x5555555555555555;

		event->err[i] = bpf_usdt_arg(ctx, i, &value);
#ifdef HAS_ARG_SIZE
		event->size[i] = bpf_usdt_arg_size(ctx, i);
#else
		event->size[i] = 0;
#endif
		event->val[i] = value;
	}
	bpf_ringbuf_submit(event, 0);
	return 0;
}

/* The same values through BPF_USDT; errors and sizes stay 0. */
SEC("usdt")
int BPF_USDT(collect3, long a, long b, long c)
{
	long values[] = {a, b, c};
	struct event *event = reserve(ctx, COLLECT3);

	if (!event)
		return 0;
	fill(event, values, 3);
	bpf_ringbuf_submit(event, 0);
	return 0;
}

SEC("usdt")
int BPF_USDT(collect12, long a, long b, long c, long d, long e, long f, long g,
	     long h, long i, long j, long k, long l)
{
	long values[] = {a, b, c, d, e, f, g, h, i, j, k, l};
	struct event *event = reserve(ctx, COLLECT12);

	if (!event)
		return 0;
	fill(event, values, 12);
	bpf_ringbuf_submit(event, 0);
	return 0;
}
