/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Tells what the traced program sells, from the probe
   gousdt_demo:sale(name, pieces, price). */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct sale {
	__u64 price; /* the bits of a double: BPF has no floating point */
	__u32 pid;
	__s32 pieces;
	char name[32];
};

/* Keep the type in BTF, where bpf2go finds it. */
const struct sale *keep_sale __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} sales SEC(".maps");

SEC("usdt")
int BPF_USDT(on_sale, const char *name, int pieces, __u64 price)
{
	struct sale *sale = bpf_ringbuf_reserve(&sales, sizeof(*sale), 0);

	if (!sale)
		return 0;
	sale->pid = bpf_get_current_pid_tgid() >> 32;
	sale->pieces = pieces;
	sale->price = price;
	bpf_probe_read_user_str(sale->name, sizeof(sale->name), name);
	bpf_ringbuf_submit(sale, 0);
	return 0;
}
