/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * What the programs for libbpf report of a hit. The structure is that of
 * internal/testbpf/args.bpf.c, so that tests read both alike.
 */
#ifndef EVENT_H
#define EVENT_H

#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/usdt.bpf.h>

/* Two more than can be read, so that the error past the end is seen too. */
#define ARGUMENTS (BPF_USDT_MAX_ARG_CNT + 2)

struct event {
	__u64 cookie;
	__u32 pid; /* of the process */
	__u32 tid;
	__u64 ip;
	__s32 arg_cnt; /* what bpf_usdt_arg_cnt returned */
	__s32 program;
	__s32 err[ARGUMENTS];  /* what bpf_usdt_arg returned */
	__s32 size[ARGUMENTS]; /* what bpf_usdt_arg_size returned */
	__s64 val[ARGUMENTS];
};

enum program {
	COLLECT,
	COLLECT3,
	COLLECT12,
};

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 22);
} events SEC(".maps") __weak;

static __always_inline struct event *reserve(struct pt_regs *ctx, int program)
{
	struct event *event = bpf_ringbuf_reserve(&events, sizeof(*event), 0);
	__u64 id = bpf_get_current_pid_tgid();

	if (!event)
		return 0;
	event->cookie = bpf_usdt_cookie(ctx);
	event->pid = id >> 32;
	event->tid = id;
	event->ip = PT_REGS_IP(ctx);
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

#endif
