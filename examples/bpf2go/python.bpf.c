/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Tells the functions that Python calls, from the probe
   python:function__entry(file, function, line). */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct call {
	__u32 pid;
	__s32 line;
	__u8 file[80];
	__u8 function[40];
};

/* Keep the type in BTF, where bpf2go finds it. */
const struct call *keep_call __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} ring SEC(".maps");

SEC("usdt")
int BPF_USDT(on_call, const char *file, const char *function, int line)
{
	struct call *call = bpf_ringbuf_reserve(&ring, sizeof(*call), 0);

	if (!call)
		return 0;
	call->pid = bpf_get_current_pid_tgid() >> 32;
	call->line = line;
	bpf_probe_read_user_str(call->file, sizeof(call->file), file);
	bpf_probe_read_user_str(call->function, sizeof(call->function), function);
	bpf_ringbuf_submit(call, 0);
	return 0;
}
