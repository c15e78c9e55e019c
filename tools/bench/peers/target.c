/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The traced program whose hits are measured. For each shape of arguments it has
 * twin sites, so that several tracers can be attached at a time, each to its own:
 * probe SHAPE_TRACER, for example registers12_3. All are the same three instructions.
 *
 *	run PROBE N	passes the probe N times; answers the nanoseconds of all
 *	pace PROBE THREADS RATE MILLISECONDS
 *			each thread, on a processor of its own, passes the probe RATE
 *			times a second, or as often as it can if RATE is 0; answers
 *			how often all have passed it, and the nanoseconds
 *
 * All that happens at a hit happens on the thread that makes it, so its own time
 * is measured: that of other programs does not count.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>

#include "serve.h"

#ifndef __x86_64__
#error "the sites are written for x86-64"
#endif

/*
 * A function that loops over a site, its note, and its entry in the table below. The
 * stack arguments are in a frame of 128 bytes, all of it used.
 */
asm(".macro site shape, tracer, arguments\n"
    "	.text\n"
    "	.balign 64\n"
    "10:	push %rbp\n"
    "	mov %rsp, %rbp\n"
    "	sub $128, %rsp\n"
    "	lea a_text(%rip), %rax\n"
    "	.balign 16\n"
    "11:	nop\n"
    "	dec %rdi\n"
    "	jnz 11b\n"
    "	leave\n"
    "	ret\n"
    "	.pushsection .note.stapsdt, \"\", \"note\"\n"
    "	.balign 4\n"
    "	.4byte 8, 13f - 12f, 3\n"
    "	.asciz \"stapsdt\"\n"
    "12:	.8byte 11b, _.stapsdt.base, 0\n"
    "	.asciz \"bench\"\n"
    "	.asciz \"\\shape\\()_\\tracer\"\n"
    "	.asciz \"\\arguments\"\n"
    "13:	.balign 4\n"
    "	.popsection\n"
    "	.pushsection .rodata.names, \"a\"\n"
    "14:	.asciz \"\\shape\\()_\\tracer\"\n"
    "	.popsection\n"
    "	.pushsection sites, \"a\"\n"
    "	.8byte 14b, 10b\n"
    "	.popsection\n"
    ".endm\n"
    /* Two sites in a loop, which start and end a call. */
    ".macro endpoint address, name\n"
    "	.pushsection .note.stapsdt, \"\", \"note\"\n"
    "	.balign 4\n"
    "	.4byte 8, 23f - 22f, 3\n"
    "	.asciz \"stapsdt\"\n"
    "22:	.8byte \\address, _.stapsdt.base, 0\n"
    "	.asciz \"bench\"\n"
    "	.asciz \"\\name\"\n"
    "	.asciz \"8@%rax\"\n"
    "23:	.balign 4\n"
    "	.popsection\n"
    ".endm\n"
    /* With tables its calls are known by their frames. */
    ".macro pair tracer, tables=0\n"
    "	.text\n"
    "	.balign 64\n"
    "	.if \\tables\n"
    "	.cfi_startproc\n"
    "	.endif\n"
    "10:	push %rbp\n"
    "	.if \\tables\n"
    "	.cfi_adjust_cfa_offset 8\n"
    "	.endif\n"
    "	.balign 16\n"
    "11:	nop\n"
    "	mov %rdi, %rax\n"
    "15:	nop\n"
    "	dec %rdi\n"
    "	jnz 11b\n"
    "	pop %rbp\n"
    "	ret\n"
    "	.if \\tables\n"
    "	.cfi_endproc\n"
    "	.endif\n"
    "	endpoint 11b, call_\\tracer\\()__start\n"
    "	endpoint 15b, call_\\tracer\\()__done\n"
    "	.pushsection .rodata.names, \"a\"\n"
    "14:	.asciz \"call_\\tracer\"\n"
    "	.popsection\n"
    "	.pushsection sites, \"a\"\n"
    "	.8byte 14b, 10b\n"
    "	.popsection\n"
    ".endm\n"
    ".macro twins shape, arguments\n"
    "	.irp tracer, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17\n"
    "	site \\shape, \\tracer, \"\\arguments\"\n"
    "	.endr\n"
    ".endm\n"
    "	.pushsection .stapsdt.base, \"aG\", \"progbits\", .stapsdt.base, comdat\n"
    "	.weak _.stapsdt.base\n"
    "_.stapsdt.base: .space 1\n"
    "	.size _.stapsdt.base, 1\n"
    "	.popsection\n"
    "	.pushsection .rodata.text, \"a\"\n"
    "a_text: .asciz \"this text has thirty-two letters\"\n"
    "	.popsection\n"
    "	twins text1, \"8@%rax\"\n"
    "	twins registers3, \"8@%rax 8@%rbx 8@%rcx\"\n"
    "	twins registers12, \"8@%rax 8@%rbx 8@%rcx 8@%rdx 8@%rsi 8@%rdi 8@%rbp 8@%r8 8@%r9 8@%r10 8@%r11 8@%r12\"\n"
    "	twins stack3, \"8@8(%rsp) 8@16(%rsp) 8@24(%rsp)\"\n"
    "	twins stack12, \"8@8(%rsp) 8@16(%rsp) 8@24(%rsp) 8@32(%rsp) 8@40(%rsp) 8@48(%rsp) "
    "8@56(%rsp) 8@64(%rsp) 8@72(%rsp) 8@80(%rsp) 8@88(%rsp) 8@96(%rsp)\"\n"
    "	.irp tracer, 0, 1, 2\n"
    "	pair \\tracer\n"
    "	.endr\n"
    "	pair 3, 1\n"
    "	.text\n");

struct site {
	const char *probe;
	void (*pass)(long times);
};

extern const struct site __start_sites[], __stop_sites[];

static const struct site *find(const char *probe)
{
	for (const struct site *s = __start_sites; s < __stop_sites; s++)
		if (!strcmp(s->probe, probe))
			return s;
	answer("error no probe %s", probe);
	return NULL;
}

/* What is passed at a time: a reader has to keep up with bursts, too. */
#define BURST_NS 1000000LL
#define BURST_UNPACED 512

struct pacer {
	pthread_t thread;
	const struct site *site;
	int processor;
	long rate, passed;
	long long start, end;
};

static void *pace(void *argument)
{
	struct pacer *p = argument;
	cpu_set_t processor;
	long burst = p->rate ? p->rate * BURST_NS / 1000000000 : BURST_UNPACED;

	CPU_ZERO(&processor);
	CPU_SET(p->processor, &processor);
	pthread_setaffinity_np(pthread_self(), sizeof(processor), &processor);
	if (burst < 1)
		burst = 1;
	while (now_ns() < p->end) {
		p->site->pass(burst);
		p->passed += burst;
		if (!p->rate)
			continue;
		long long due = p->start + (long long)(p->passed * 1e9 / p->rate);
		struct timespec until = { due / 1000000000, due % 1000000000 };

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
	}
	return NULL;
}

static void pace_all(const struct site *site, int threads, long rate, long milliseconds)
{
	struct pacer *all = calloc(threads, sizeof(*all));
	long long start = now_ns();
	long passed = 0;

	for (int i = 0; i < threads; i++) {
		all[i] = (struct pacer){ .site = site, .processor = i, .rate = rate, .start = start,
					 .end = start + milliseconds * 1000000LL };
		if (pthread_create(&all[i].thread, NULL, pace, &all[i])) {
			answer("error no thread"); /* and the caller gives up */
			return;
		}
	}
	for (int i = 0; i < threads; i++) {
		pthread_join(all[i].thread, NULL);
		passed += all[i].passed;
	}
	answer("ok %ld %lld", passed, now_ns() - start);
	free(all);
}

static void handle(int count, char **words)
{
	const struct site *site;

	if (count == 3 && !strcmp(words[0], "run")) {
		if ((site = find(words[1]))) {
			long long start = clock_ns(CLOCK_THREAD_CPUTIME_ID);

			site->pass(atol(words[2]));
			answer("ok %lld", clock_ns(CLOCK_THREAD_CPUTIME_ID) - start);
		}
	} else if (count == 5 && !strcmp(words[0], "pace")) {
		if ((site = find(words[1])))
			pace_all(site, atoi(words[2]), atol(words[3]), atol(words[4]));
	} else
		answer("error unknown command");
}

int main(void)
{
	return serve(handle);
}
