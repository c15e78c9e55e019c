/* SPDX-License-Identifier: BSD-2-Clause */

/* Reads one slot of registers that are here in memory: those of any machine. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

__u8 registers[512] __attribute__((aligned(8)));
__u64 slot;
__u64 word;

SEC("socket")
int read_slot(void *ctx)
{
	word = __bpf_usdt_word((struct pt_regs *)registers, slot);
	return 0;
}
