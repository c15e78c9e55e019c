/* SPDX-License-Identifier: BSD-2-Clause */

/* The other one. */
#include "event.h"
#include <bpf/bpf_core_read.h>

extern __s64 sum;
extern int LINUX_KERNEL_VERSION __kconfig;

__u32 kernel_version;
__s32 process;

__weak __hidden int first_argument(struct pt_regs *ctx)
{
	return -1;
}

/* A structure of the kernel's, of which the loader finds the member's place. */
struct task_struct {
	int tgid;
} __attribute__((preserve_access_index));

/* Behind what is not used in the linked object. */
static __noinline int process_id(struct task_struct *task)
{
	return BPF_CORE_READ(task, tgid);
}

SEC("usdt")
int BPF_USDT(second, long a, long b)
{
	kernel_version = LINUX_KERNEL_VERSION;
	process = process_id((void *)bpf_get_current_task());
	sum = a - b + first_argument(ctx) + bpf_usdt_cookie(ctx);
	return 0;
}
