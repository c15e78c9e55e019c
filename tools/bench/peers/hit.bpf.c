/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The programs at the measured hits, compiled once with the header of this
 * module and once with libbpf's: an empty program, programs that add up arguments,
 * and programs that send them through a ring buffer.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>

#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Room for the events of the longest measurement, which is drained after it. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 16 << 20);
} events SEC(".maps");

long sum;

SEC("usdt")
int empty(struct pt_regs *ctx)
{
	return 0;
}

SEC("usdt")
int BPF_USDT(add3, long a, long b, long c)
{
	sum = a + b + c;
	return 0;
}

SEC("usdt")
int BPF_USDT(add12, long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l)
{
	sum = a + b + c + d + e + f + g + h + i + j + k + l;
	return 0;
}

/* Waking up a reader costs more than all else, and no tracer can change that. */
#define SEND(count, values...)                                                 \
	do {                                                                   \
		long *event = bpf_ringbuf_reserve(&events, (count) * 8, 0);    \
		long all[] = { values };                                       \
                                                                               \
		if (!event)                                                    \
			break;                                                 \
		_Pragma("unroll") for (int i = 0; i < (count); i++)            \
			event[i] = all[i];                                     \
		bpf_ringbuf_submit(event, BPF_RB_NO_WAKEUP);                   \
	} while (0)

SEC("usdt")
int BPF_USDT(send3, long a, long b, long c)
{
	SEND(3, a, b, c);
	return 0;
}

SEC("usdt")
int BPF_USDT(send12, long a, long b, long c, long d, long e, long f, long g, long h, long i, long j, long k, long l)
{
	SEND(12, a, b, c, d, e, f, g, h, i, j, k, l);
	return 0;
}

/*
 * The time of a call, as programs for libbpf measure it: by thread. A call that
 * takes a second is sent.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 10240);
	__uint(key_size, 4);
	__uint(value_size, 8);
} begun SEC(".maps");

SEC("usdt")
int start_call(struct pt_regs *ctx)
{
	unsigned int thread = bpf_get_current_pid_tgid();
	unsigned long long now = bpf_ktime_get_ns();

	bpf_map_update_elem(&begun, &thread, &now, BPF_ANY);
	return 0;
}

SEC("usdt")
int end_call(struct pt_regs *ctx)
{
	unsigned int thread = bpf_get_current_pid_tgid();
	unsigned long long *start = bpf_map_lookup_elem(&begun, &thread), took;

	if (!start)
		return 0;
	took = bpf_ktime_get_ns() - *start;
	bpf_map_delete_elem(&begun, &thread);
	if (took >= 1000000000)
		SEND(1, took);
	return 0;
}
