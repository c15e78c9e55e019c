/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Programs in the sections that objects with USDT programs have. A test puts a
 * path in the place of TARGET, through ProgramSpec.AttachTo.
 */
#include "event.h"

char LICENSE[] SEC("license") = "Dual BSD/GPL";

/* Another variable that the loader has to give a value to. */
extern int LINUX_KERNEL_VERSION __kconfig;

__u32 kernel_version;
__u64 hits[8];
__s64 last[8];

SEC("usdt")
int BPF_USDT(without_place, long a)
{
	kernel_version = LINUX_KERNEL_VERSION;
	hits[0]++;
	last[0] = a;
	return 0;
}

SEC("usdt/TARGET:gousdt_test:three")
int BPF_USDT(placed, long a)
{
	hits[1]++;
	last[1] = a;
	return 0;
}

SEC("?usdt/TARGET:gousdt_test:twelve")
int BPF_USDT(optional, long a, long b)
{
	hits[2]++;
	last[2] = b;
	return 0;
}

/* The caller attaches it, by what it knows of the two names. */
SEC("usdt/gousdt_test/three")
int BPF_USDT(named_otherwise, long a, long b)
{
	hits[3]++;
	last[3] = b;
	return 0;
}

SEC("kprobe/do_nanosleep")
int other_kprobe(struct pt_regs *ctx)
{
	hits[4]++;
	return 0;
}

SEC("tracepoint/syscalls/sys_enter_getpid")
int other_tracepoint(void *ctx)
{
	hits[5]++;
	return 0;
}

SEC("uprobe")
int other_uprobe(struct pt_regs *ctx)
{
	hits[6]++;
	return 0;
}
