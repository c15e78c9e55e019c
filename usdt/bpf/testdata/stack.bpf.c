/* SPDX-License-Identifier: BSD-2-Clause */

/* A program with parameters and large variables, for this header and others. */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <stdbool.h>
#include <bpf/usdt.bpf.h>

char LICENSE[] SEC("license") = "Dual BSD/GPL";

long values[12];

#define LIST_1(f) f(0, a)
#define LIST_3(f) LIST_1(f) f(1, b) f(2, c)
#define LIST_6(f) LIST_3(f) f(3, d) f(4, e) f(5, g)
#define LIST_12(f) LIST_6(f) f(6, h) f(7, i) f(8, j) f(9, k) f(10, l) f(11, m)

#if PARAMETERS == 1
#define LIST LIST_1
#define DECLARED long a
#elif PARAMETERS == 3
#define LIST LIST_3
#define DECLARED long a, long b, long c
#elif PARAMETERS == 6
#define LIST LIST_6
#define DECLARED long a, long b, long c, long d, long e, long g
#else
#define LIST LIST_12
#define DECLARED                                                               \
	long a, long b, long c, long d, long e, long g, long h, long i,        \
		long j, long k, long l, long m
#endif

#define STORE(n, parameter) values[n] = parameter;

SEC("usdt")
int BPF_USDT(program, DECLARED)
{
	char large[384];

#ifdef EARLY
	LIST(STORE)
#endif
	__builtin_memset(large, 0, sizeof(large));
	bpf_get_current_comm(large, sizeof(large));
#ifdef LATE
	LIST(STORE)
#endif
	return large[0];
}
