/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Counts what a thread has the kernel write while it executes a statement: the
   USDT probes say which statement it is, and a kprobe finds that in a map. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct text {
	__u8 bytes[64];
};

/* What each thread executes now. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 8192);
	__type(key, __u64);
	__type(value, struct text);
} executing SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 8192);
	__type(key, struct text);
	__type(value, __u64);
} writes SEC(".maps");

SEC("usdt")
int BPF_USDT(on_start, const char *statement)
{
	__u64 thread = bpf_get_current_pid_tgid();
	struct text text = {};

	if (bpf_probe_read_user_str(&text, sizeof(text), statement) > 0)
		bpf_map_update_elem(&executing, &thread, &text, BPF_ANY);
	return 0;
}

SEC("usdt")
int BPF_USDT(on_done)
{
	__u64 thread = bpf_get_current_pid_tgid();

	bpf_map_delete_elem(&executing, &thread);
	return 0;
}

SEC("kprobe/vfs_write")
int on_write(void *ctx __attribute__((unused)))
{
	__u64 thread = bpf_get_current_pid_tgid(), one = 1, *count;
	struct text *text = bpf_map_lookup_elem(&executing, &thread);

	if (!text)
		return 0;
	count = bpf_map_lookup_elem(&writes, text);
	if (count)
		__sync_fetch_and_add(count, 1);
	else
		bpf_map_update_elem(&writes, text, &one, BPF_NOEXIST);
	return 0;
}
