/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Programs as people write them for libbpf's header of the same name. They
 * have to compile against ours as they are, without a warning, for every
 * machine.
 */
#define BPF_USDT_MAX_SPEC_CNT 1024
#define BPF_USDT_MAX_IP_CNT 2048

#ifdef WITH_VMLINUX_H
#include "vmlinux.h"
#else
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#endif
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Included twice, by way of another header say. */
#include <bpf/usdt.bpf.h>

enum state { STARTED, DONE };

struct connection {
	int fd;
};

int traced;
long calls;
long sums[3];
int lengths[4];
long returned;

/* The functions, called in the ways that the compiler is asked to accept. */
SEC("usdt")
int by_function(struct pt_regs *ctx)
{
	long number, text = 0;

	lengths[0] = bpf_usdt_arg_size(ctx, 0);
	lengths[1] = bpf_usdt_arg_cnt(ctx);
	sums[0] ^= bpf_usdt_cookie(ctx);

	returned = bpf_usdt_arg(ctx, 0, &number);
	if (returned == -ENOENT || returned == -ESRCH)
		return 1;
	sums[1] += (int)number;
	if (bpf_usdt_arg(ctx, 1, &text) < 0)
		return 1;
	sums[2] += *(unsigned char *)&text;

	for (int i = 2; i < 4; i++)
		lengths[i] = bpf_usdt_arg_size(ctx, i);
	return 0;
}

/* As many parameters as there can be, of every type of integer. */
SEC("usdt/./target:provider:name")
int BPF_USDT(twelve, int a, unsigned b, long c, unsigned long d, short e,
	     unsigned short f, signed char g, unsigned char h, __u64 i,
	     __s64 j, char k, long long l)
{
	if (bpf_get_current_pid_tgid() >> 32 != (__u32)traced)
		return 0;
	sums[0] = a + b + c + d;
	sums[1] = e + f + g + h;
	sums[2] = i + j + k + l + bpf_usdt_cookie(ctx);
	return 0;
}

SEC("usdt")
int BPF_USDT(pointers, const char *name, struct connection *connection,
	     void **vector, _Bool flag, enum state state, unsigned char byte)
{
	struct connection copy;
	char text[16];

	bpf_probe_read_user_str(text, sizeof(text), name);
	if (bpf_probe_read_user(&copy, sizeof(copy), connection))
		return 1;
	sums[0] += copy.fd + text[0] + (vector != 0);
	return flag && state == DONE && byte > 1;
}

SEC("usdt")
int BPF_USDT(unused_parameters, long a, long b)
{
	return 0;
}

SEC("usdt")
int BPF_USDT(no_parameters)
{
	__sync_fetch_and_add(&calls, 1);
	return 0;
}

SEC("usdt.s/./target:test:sleepy")
int BPF_USDT(sleepy, const void *from)
{
	return bpf_copy_from_user(&sums[0], sizeof(sums[0]), from);
}

/* A macro like BPF_USDT, as other headers have it. */
#define TRACED(name, args...)                                                  \
	name(struct pt_regs *ctx);                                             \
	static __always_inline int ____##name(struct pt_regs *ctx, ##args);    \
	int name(struct pt_regs *ctx)                                          \
	{                                                                      \
		_Pragma("GCC diagnostic push")                                 \
		_Pragma("GCC diagnostic ignored \"-Wint-conversion\"")         \
		return ____##name(___bpf_usdt_args(args));                     \
		_Pragma("GCC diagnostic pop")                                  \
	}                                                                      \
	static __always_inline int ____##name(struct pt_regs *ctx, ##args)

SEC("usdt")
int TRACED(through_another_macro, int a, void *b, long c)
{
	sums[0] = a + c + (b != 0);
	return 0;
}

SEC("?usdt/./target:test:none")
int TRACED(without_parameters_through_another_macro)
{
	return 0;
}

/* Where an argument is. */
SEC("usdt")
int by_address(struct pt_regs *ctx)
{
	__u64 address;

	if (bpf_usdt_arg_address(ctx, 0, &address))
		return 1;
	return bpf_probe_read_user(&sums[0], sizeof(sums[0]), (void *)address);
}

/* From a function of one's own, and from one that is a subprogram. */
static __always_inline long first(struct pt_regs *ctx)
{
	long value;

	return bpf_usdt_arg(ctx, 0, &value) ? -1 : value;
}

static __noinline long sum(struct pt_regs *ctx, int count)
{
	long value, total = 0;

	for (int i = 0; i < count && i < 12; i++)
		if (!bpf_usdt_arg(ctx, i, &value))
			total += value;
	return total;
}

SEC("uprobe")
int through_functions(struct pt_regs *ctx)
{
	sums[0] = first(ctx);
	sums[1] = sum(ctx, bpf_usdt_arg_cnt(ctx));
	return 0;
}
