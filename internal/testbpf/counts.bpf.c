/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Programs that count hits, for tests with many of them. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct hit {
	__u64 cookie;
	__u32 pid; /* of the process */
	__u32 tid; /* 0 in count_bare, which does not tell threads apart */
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__type(key, struct hit);
	__type(value, __u64);
} hits SEC(".maps");

static __always_inline void increment(struct hit *hit)
{
	__u64 one = 1, *hits_so_far = bpf_map_lookup_elem(&hits, hit);

	if (!hits_so_far) {
		if (!bpf_map_update_elem(&hits, hit, &one, BPF_NOEXIST))
			return;
		/* Another CPU was faster. */
		hits_so_far = bpf_map_lookup_elem(&hits, hit);
	}
	if (hits_so_far)
		__sync_fetch_and_add(hits_so_far, 1);
}

/* By cookie, process and thread. */
SEC("usdt")
int count(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct hit hit = {
		.cookie = bpf_usdt_cookie(ctx),
		.pid = id >> 32,
		.tid = id,
	};

	increment(&hit);
	return 0;
}

/* By process alone: without parameters and cookie no spec is looked up. */
SEC("usdt")
int BPF_USDT(count_bare)
{
	struct hit hit = {.pid = bpf_get_current_pid_tgid() >> 32};

	increment(&hit);
	return 0;
}
