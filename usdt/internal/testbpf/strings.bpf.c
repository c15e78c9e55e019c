/* SPDX-License-Identifier: BSD-2-Clause */
//go:build ignore

/* A string argument and two others, as real programs have them. */
#include <linux/bpf.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

struct text {
	__u32 pid; /* of the process */
	__s32 length; /* of string with its NUL, or the error of the read */
	__s64 second;
	__s64 third;
	char string[64];
};

/* Keep the type in BTF, where bpf2go finds it. */
const struct text *keep_text __attribute__((unused));

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20);
} texts SEC(".maps");

SEC("usdt")
int BPF_USDT(text3, const char *string, long second, long third)
{
	struct text *text = bpf_ringbuf_reserve(&texts, sizeof(*text), 0);

	if (!text)
		return 0;
	text->pid = bpf_get_current_pid_tgid() >> 32;
	text->length = bpf_probe_read_user_str(text->string,
					       sizeof(text->string), string);
	text->second = second;
	text->third = third;
	bpf_ringbuf_submit(text, 0);
	return 0;
}
