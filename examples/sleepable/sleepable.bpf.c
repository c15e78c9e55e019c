/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* Reads memory that a probe's argument points to, twice: by a program that takes
   what is there, and by one that waits for what is not. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct event {
	__s64 err;
	__u8 bytes[16];
};

/* Keep the type in BTF, where bpf2go finds it. */
const struct event *keep_event __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 18);
} events SEC(".maps");

/* In the stack until it is complete: what is reserved in a ring buffer holds back
   what others send, for as long as this program waits. */
SEC("usdt.s")
int BPF_USDT(waits, const void *memory)
{
	struct event event = {};

	event.err = bpf_copy_from_user(event.bytes, sizeof(event.bytes), memory);
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return 0;
}

SEC("usdt")
int BPF_USDT(hurries, const void *memory)
{
	struct event event = {};

	event.err = bpf_probe_read_user(event.bytes, sizeof(event.bytes), memory);
	bpf_ringbuf_output(&events, &event, sizeof(event), 0);
	return 0;
}
