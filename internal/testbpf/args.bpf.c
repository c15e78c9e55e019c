/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/*
 * Programs that tell everything they can learn about a hit, for the
 * integration tests of package usdt.
 */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Two more than can be read, so that the error past the end is seen too. */
#define ARGUMENTS (BPF_USDT_MAX_ARG_CNT + 2)

struct event {
	__u64 cookie;
	__u32 pid; /* of the process */
	__u32 tid;
	__u64 ip;
	__s32 arg_cnt; /* what bpf_usdt_arg_cnt returned */
	__s32 program; /* see below */
	__s32 err[ARGUMENTS];  /* what bpf_usdt_arg returned */
	__s32 size[ARGUMENTS]; /* what bpf_usdt_arg_size returned */
	__s64 val[ARGUMENTS];
};

enum program {
	COLLECT,
	COLLECT3,
	COLLECT12,
};

/* A string argument and two others, as real programs have them. */
struct text {
	__u32 pid; /* of the process */
	__s32 length; /* of string with its NUL, or the error of the read */
	__s64 second;
	__s64 third;
	char string[64];
};

/* Keep the types in BTF, where bpf2go finds them. */
const struct event *keep_event __attribute__((unused));
const enum program *keep_program __attribute__((unused));
const struct text *keep_text __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps");

/* Hits whose event found no room in a ring buffer. */
__u64 lost;

static __always_inline struct event *reserve(struct pt_regs *ctx, int program)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	__u64 id = bpf_get_current_pid_tgid();

	if (!event) {
		__sync_fetch_and_add(&lost, 1);
		return 0;
	}
	event->cookie = bpf_usdt_cookie(ctx);
	event->pid = id >> 32;
	event->tid = id;
	event->ip = __bpf_usdt_word(ctx, __BPF_USDT_IP_SLOT);
	event->arg_cnt = bpf_usdt_arg_cnt(ctx);
	event->program = program;
	return event;
}

static __always_inline void fill(struct event *event, long *values, int count)
{
	for (int i = 0; i < ARGUMENTS; i++) {
		event->err[i] = 0;
		event->size[i] = 0;
		event->val[i] = i < count ? values[i] : 0;
	}
}

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
		event->size[i] = bpf_usdt_arg_size(ctx, i);
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

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} texts SEC(".maps");

SEC("usdt")
int BPF_USDT(text3, const char *string, long second, long third)
{
	struct text *text = bpf_ringbuf_reserve(&texts, sizeof(*text), 0);

	if (!text)
		return 0;
	text->pid = bpf_get_current_pid_tgid() >> 32;
	text->length = bpf_probe_read_user_str(text->string,
					       sizeof(text->string), string);
	text->second = second;
	text->third = third;
	bpf_ringbuf_submit(text, 0);
	return 0;
}
