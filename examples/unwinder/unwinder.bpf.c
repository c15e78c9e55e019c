/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Walks the stack of whoever passes a probe, by frame pointers, in as many tail
   calls as that takes: a program may run for a limited time only, and a new one
   begins with each tail call. The probe's program puts the argument where the
   unwinder finds it, because a tail call keeps nothing but the context. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

#define FRAMES_PER_PROGRAM 3
#define MAX_FRAMES 128 /* the kernel allows 33 tail calls one after the other */

/* Where the first frame is, by the number of a word in struct pt_regs, and how
   one frame leads to the next. */
#if defined(__TARGET_ARCH_x86)
#define IP 16 /* rip */
#define FP 4  /* rbp */
#elif defined(__TARGET_ARCH_arm64)
#define IP 32 /* pc */
#define FP 29 /* x29 */
#elif defined(__TARGET_ARCH_riscv)
#define IP 0 /* pc */
#define FP 8 /* s0 */
#elif defined(__TARGET_ARCH_s390)
#define IP 2  /* psw.addr */
#define FP 18 /* r15: the stack begins with the address of the caller's */
#endif

struct sample {
	__u32 pid;
	__u32 programs; /* how many have been run for it */
	__s64 argument;
	__u64 frame; /* the next one */
	__u32 failed;
	__u32 count;
	__u64 stack[MAX_FRAMES];
};

/* By thread and not by CPU: on a kernel that preempts, another thread may pass
   the probe on this CPU before the last program is done. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct sample);
} samples SEC(".maps");

/* What a sample begins with: it is too large for the stack of a program. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct sample);
} empty SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} programs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} events SEC(".maps");

SEC("usdt")
int BPF_USDT(on_probe, long argument)
{
	__u64 thread = bpf_get_current_pid_tgid();
	__u32 zero = 0;
	struct sample *sample = bpf_map_lookup_elem(&empty, &zero);

	if (!sample || bpf_map_update_elem(&samples, &thread, sample, BPF_ANY))
		return 0;
	sample = bpf_map_lookup_elem(&samples, &thread);
	if (!sample)
		return 0;
	sample->pid = thread >> 32;
	sample->argument = argument;
	sample->stack[0] = ((const volatile __u64 *)ctx)[IP];
	sample->count = 1;
	sample->frame = ((const volatile __u64 *)ctx)[FP];
	bpf_tail_call(ctx, &programs, 0);
	return 0;
}

/* Goes from a frame to that of the caller. Returns whether there is one. */
static __always_inline int step(struct sample *sample)
{
	__u32 at = sample->count;
	__u64 caller = 0, address = 0;

	if (at >= MAX_FRAMES || !sample->frame || sample->frame % 8)
		return 0;
#if defined(__TARGET_ARCH_s390)
	if (bpf_probe_read_user(&caller, 8, (void *)sample->frame) || !caller ||
	    bpf_probe_read_user(&address, 8, (void *)(caller + 14 * 8)))
		return 0;
#else
	__u64 words[2];
#if defined(__TARGET_ARCH_riscv)
	const __u64 *place = (__u64 *)sample->frame - 2;
#else
	const __u64 *place = (__u64 *)sample->frame;
#endif

	if (bpf_probe_read_user(words, sizeof(words), place))
		return 0;
	caller = words[0];
	address = words[1];
#endif
	if (!address)
		return 0;
	sample->stack[at] = address;
	sample->count = at + 1;
	if (caller <= sample->frame) /* stacks grow down */
		return 0;
	sample->frame = caller;
	return 1;
}

SEC("usdt")
int unwind(struct pt_regs *ctx)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct sample *sample = bpf_map_lookup_elem(&samples, &thread);
	int more = 1;

	if (!sample)
		return 0;
	sample->programs++;
#pragma unroll
	for (int i = 0; i < FRAMES_PER_PROGRAM; i++)
		if (more)
			more = step(sample);
	if (more)
		bpf_tail_call(ctx, &programs, 0);
	bpf_ringbuf_output(&events, sample, sizeof(*sample), 0);
	bpf_map_delete_elem(&samples, &thread);
	return 0;
}
