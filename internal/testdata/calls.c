/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Calls whose true times are known. Each line on standard input names a scenario,
 * "nested", "recursive", "thrown", "crossed", "deep", "threads", "failed", "statements",
 * "interleaved", "elsewhere", "swapped", "chained" or "coroutine". It is answered by a line for each call that has ended,
 * in the order in which they ended:
 *
 *     call NAME ID THREAD LOW HIGH
 *
 * and by "ok". ID is the first argument of the start, and the second one of the end;
 * LOW and HIGH are nanoseconds between which the time from probe to probe lies: from
 * behind the one to before the other, and from before the one to behind the other.
 * What is in between takes some time, so that no call is mistaken for another.
 *
 * With the argument "leave", it passes a start and ends; with "end" it passes an end
 * that has no start, and ends. With "slowly" it passes a start after one line, answers
 * "ok", and passes the end after another line. With "always" it makes calls in all
 * threads until there is no more input, and answers nothing.
 */

#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <ucontext.h>
#include <unistd.h>

#include <sys/sdt.h>

enum { THREADS = 4, DEEP = 70, CALLS = 1000 };

/* Neither inlined nor cloned: each probe has one site, and each call a frame. */
#if defined(__clang__)
#define ONCE __attribute__((noinline, used))
#else
#define ONCE __attribute__((noinline, noclone, used))
#endif

struct call {
	const char *name;
	long id;
	uint64_t before_start, after_start, before_done, after_done;
};

static __thread struct call ended[CALLS];
static __thread int count;
static __thread long last_id;
static __thread jmp_buf caught;
static __thread volatile char room;

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* Each takes another time. */
static void work(long id)
{
	uint64_t until = now() + 20000 + 7000 * (id % 13);

	while (now() < until)
		;
}

static long new_id(void)
{
	return ++last_id + 1000000 * (long)syscall(SYS_gettid);
}

static void keep(struct call *c)
{
	if (count < CALLS)
		ended[count++] = *c;
}

/* In the probes, the text is in a buffer that is overwritten before the call ends. */
#define CALL(pair, c, body)                                                    \
	do {                                                                   \
		char text[32];                                                 \
		(c).name = #pair;                                              \
		(c).id = new_id();                                             \
		snprintf(text, sizeof(text), "%s %ld", #pair, (c).id);         \
		(c).before_start = now();                                      \
		DTRACE_PROBE2(gousdt_calls, pair##__start, (c).id, text);      \
		(c).after_start = now();                                       \
		memset(text, '-', sizeof(text) - 1);                           \
		work((c).id);                                                  \
		body;                                                          \
		work((c).id);                                                  \
		(c).before_done = now();                                       \
		DTRACE_PROBE2(gousdt_calls, pair##__done, -1, (c).id);         \
		(c).after_done = now();                                        \
		keep(&(c));                                                    \
	} while (0)

ONCE static void inner(int depth)
{
	struct call c;

	CALL(inner, c, if (depth > 1) inner(depth - 1));
	room = depth;
}

ONCE static void outer(int depth)
{
	struct call c;

	CALL(outer, c, {
		inner(2);
		if (depth > 1)
			outer(depth - 1);
		inner(1);
	});
	room = depth;
}

/* The innermost call is left by a long jump, to the one that is the third from it. */
ONCE static void jump(int depth)
{
	struct call c;

	CALL(jump, c, {
		if (depth == 0)
			longjmp(caught, 1);
		if (depth == 3) {
			if (!setjmp(caught))
				jump(depth - 1);
		} else {
			jump(depth - 1);
		}
	});
	room = depth;
}

ONCE static void normal(void)
{
	struct call c;

	CALL(jump, c, );
	room = 0;
}

/* Two calls neither of which is inside the other. */
ONCE static void crossed(void)
{
	struct call a = {.name = "left", .id = new_id()}, b = {.name = "right", .id = new_id()};

	a.before_start = now();
	DTRACE_PROBE2(gousdt_calls, left__start, a.id, "");
	a.after_start = now();
	work(a.id);
	b.before_start = now();
	DTRACE_PROBE2(gousdt_calls, right__start, b.id, "");
	b.after_start = now();
	work(b.id);
	a.before_done = now();
	DTRACE_PROBE2(gousdt_calls, left__done, -1, a.id);
	a.after_done = now();
	keep(&a);
	work(a.id);
	b.before_done = now();
	DTRACE_PROBE2(gousdt_calls, right__done, -1, b.id);
	b.after_done = now();
	keep(&b);
}

/*
 * A call that passes the probe "aborted", and is left by a long jump, or goes on to its
 * end all the same, as a query does that is a ROLLBACK.
 */
ONCE static void query(int goes_on)
{
	struct call c;

	CALL(query, c, {
		c.before_done = now();
		DTRACE_PROBE2(gousdt_calls, aborted, -1, c.id);
		c.after_done = now();
		if (!goes_on) {
			keep(&c);
			longjmp(caught, 1);
		}
	});
	room = 0;
}

/*
 * Statements as a database server runs them: all of one in "simple", or only its
 * execution, perhaps several times inside each other. An error is a long jump. The
 * variable is what is being run.
 */
__attribute__((used)) const char *gousdt_statement;

enum how { SIMPLE, EXTENDED, ATTEMPT, SAME_FRAME };
enum error { NONE, ABORTS, ABORTS_NOTHING, ROLLBACK };

static void next_state(const char *text)
{
	gousdt_statement = text;
	DTRACE_PROBE1(gousdt_calls, state, text);
}

ONCE static void execute(int depth, int fails)
{
	DTRACE_PROBE(gousdt_calls, execute_goes);
	if (depth > 1)
		execute(depth - 1, fails);
	else if (fails)
		longjmp(caught, 1);
	DTRACE_PROBE(gousdt_calls, execute_over);
	room = depth;
}

/* The compiler has made one function of two. */
ONCE static void same_frame(void)
{
	DTRACE_PROBE(gousdt_calls, execute_goes);
	DTRACE_PROBE(gousdt_calls, execute_goes);
	DTRACE_PROBE(gousdt_calls, execute_over);
	DTRACE_PROBE(gousdt_calls, execute_over);
	room = 0;
}

ONCE static void simple(int depth, enum error error)
{
	DTRACE_PROBE1(gousdt_calls, simple_goes, gousdt_statement);
	execute(depth, error == ABORTS || error == ABORTS_NOTHING);
	if (error == ROLLBACK)
		DTRACE_PROBE(gousdt_calls, abort);
	DTRACE_PROBE1(gousdt_calls, simple_over, gousdt_statement);
	room = depth;
}

static void statement(const char *text, enum how how, int depth, enum error error)
{
	next_state(text);
	if (!setjmp(caught)) {
		if (how == SIMPLE)
			simple(depth, error);
		else if (how == EXTENDED)
			execute(depth, error != NONE);
		else if (how == SAME_FRAME)
			same_frame();
		else if (error != NONE)
			longjmp(caught, 1);
	} else {
		gousdt_statement = 0;
		if (error == ABORTS)
			DTRACE_PROBE(gousdt_calls, abort);
	}
	next_state(0);
}

static void statements(void)
{
	statement("simple", SIMPLE, 1, NONE);
	statement("extended", EXTENDED, 1, NONE);
	statement("change", EXTENDED, 2, NONE);
	statement("simple change", SIMPLE, 2, NONE);
	statement("parse", ATTEMPT, 0, NONE);
	statement("error", SIMPLE, 2, ABORTS);
	statement("extended error", EXTENDED, 3, ABORTS);
	statement("extended", EXTENDED, 2, NONE);
	statement("parse error", ATTEMPT, 0, ABORTS);
	statement("error in a part", EXTENDED, 2, ABORTS_NOTHING);
	statement("simple", SIMPLE, 1, NONE);
	statement("rollback", SIMPLE, 1, ROLLBACK);
	DTRACE_PROBE(gousdt_calls, abort); /* of no statement */
	statement("same frame", SAME_FRAME, 0, NONE);
	statement("change", EXTENDED, 2, NONE);
	statement("same frame", SAME_FRAME, 0, NONE);
}

static void report(void)
{
	for (int i = 0; i < count; i++) {
		struct call *c = &ended[i];

		printf("call %s %ld %ld %llu %llu\n", c->name, c->id, (long)syscall(SYS_gettid),
		       (unsigned long long)(c->before_done - c->after_start),
		       (unsigned long long)(c->after_done - c->before_start));
	}
	count = 0;
}

static pthread_mutex_t output = PTHREAD_MUTEX_INITIALIZER;

static void *run_thread(void *unused)
{
	(void)unused;
	for (int i = 0; i < 5; i++) {
		outer(2);
		crossed();
	}
	pthread_mutex_lock(&output);
	report();
	pthread_mutex_unlock(&output);
	return 0;
}

static void *call_always(void *unused)
{
	for (long id = new_id();; id++) {
		DTRACE_PROBE2(gousdt_calls, left__start, id, "");
		DTRACE_PROBE2(gousdt_calls, left__done, -1, id);
	}
	return unused;
}

/* The next call begins before one ends. The ends have the ID in 4 bytes. */
ONCE static void interleaved(long calls)
{
	for (long i = 0; i <= calls; i++) {
		DTRACE_PROBE1(gousdt_calls, loop__start, i - calls / 2);
		if (i > 0)
			DTRACE_PROBE1(gousdt_calls, loop__done, (int)(i - 1 - calls / 2));
	}
}

ONCE static void *start_calls(void *calls)
{
	for (long i = 0; i < (long)calls; i++)
		DTRACE_PROBE1(gousdt_calls, loop__start, i);
	return 0;
}

ONCE static void end_calls(long calls)
{
	for (long i = 0; i < calls; i++)
		DTRACE_PROBE1(gousdt_calls, loop__done, (int)i);
}

static pthread_barrier_t both;
static long swapped_ids[2];

/* In each fifth round, two threads end each other's calls. */
ONCE static void *swap_calls(void *thread)
{
	for (long round = 0, me = (long)thread; round < 40; round++) {
		swapped_ids[me] = 1000 + 2 * round + me;
		DTRACE_PROBE1(gousdt_calls, loop__start, swapped_ids[me]);
		pthread_barrier_wait(&both);
		DTRACE_PROBE1(gousdt_calls, loop__done, (int)swapped_ids[round % 5 ? me : !me]);
		pthread_barrier_wait(&both);
	}
	return 0;
}

/* A call ends with what the next one starts with, as with positions in a file. */
ONCE static void chained(long calls)
{
	for (long i = 0; i < calls; i++) {
		DTRACE_PROBE1(gousdt_calls, loop__start, i);
		DTRACE_PROBE1(gousdt_calls, loop__done, (int)i + 1);
	}
}

static ucontext_t around, coroutine;
static char coroutine_stack[1 << 17];

ONCE static void turn(int depth, void (*inside)(void))
{
	DTRACE_PROBE1(gousdt_calls, turn__start, depth);
	work(depth);
	inside();
	DTRACE_PROBE1(gousdt_calls, turn__done, depth);
}

static void nothing(void) {}
static void wait_for_turn(void) { swapcontext(&coroutine, &around); }
static void inside_coroutine(void) { turn(3, wait_for_turn); }
static void run_coroutine(void) { turn(2, inside_coroutine); }

/* A coroutine waits inside call 3 while the thread goes on in call 1. */
static void start_coroutine(void)
{
	getcontext(&coroutine);
	coroutine.uc_stack.ss_sp = coroutine_stack;
	coroutine.uc_stack.ss_size = sizeof(coroutine_stack);
	coroutine.uc_link = &around;
	makecontext(&coroutine, run_coroutine, 0);
	swapcontext(&around, &coroutine);
	work(50);
	swapcontext(&around, &coroutine);
}

static void call_coroutine(void) { turn(1, start_coroutine); }

static void run(const char *scenario)
{
	pthread_t threads[THREADS];
	int started = 0;

	if (!strcmp(scenario, "nested")) {
		outer(1);
	} else if (!strcmp(scenario, "recursive")) {
		outer(3);
	} else if (!strcmp(scenario, "thrown")) {
		normal();
		for (int i = 0; i < 3; i++)
			jump(5);
	} else if (!strcmp(scenario, "crossed")) {
		crossed();
	} else if (!strcmp(scenario, "deep")) {
		inner(DEEP);
	} else if (!strcmp(scenario, "failed")) {
		DTRACE_PROBE2(gousdt_calls, aborted, -1, 0L); /* of no call */
		for (volatile int i = 0; i < 10; i++)
			if (!setjmp(caught))
				query(0);
		query(1);
	} else if (!strcmp(scenario, "statements")) {
		statements();
	} else if (!strcmp(scenario, "interleaved")) {
		interleaved(40);
	} else if (!strcmp(scenario, "elsewhere")) {
		if (!pthread_create(&threads[0], 0, start_calls, (void *)40L))
			pthread_join(threads[0], 0);
		end_calls(40);
	} else if (!strcmp(scenario, "swapped")) {
		pthread_barrier_init(&both, 0, 2);
		if (!pthread_create(&threads[0], 0, swap_calls, (void *)1L)) {
			swap_calls((void *)0L);
			pthread_join(threads[0], 0);
		}
	} else if (!strcmp(scenario, "chained")) {
		chained(40);
	} else if (!strcmp(scenario, "coroutine")) {
		turn(0, call_coroutine);
		turn(4, nothing);
	} else if (!strcmp(scenario, "threads")) {
		while (started < THREADS && !pthread_create(&threads[started], 0, run_thread, 0))
			started++;
		for (int i = 0; i < started; i++)
			pthread_join(threads[i], 0);
	} else {
		printf("error no scenario %s\n", scenario);
		return;
	}
	report();
	printf("ok\n");
}

int main(int argc, char **argv)
{
	char line[64];

	setvbuf(stdout, 0, _IOFBF, 1 << 16);
	if (argc > 1 && !strcmp(argv[1], "leave")) {
		printf("ok\n");
		fflush(stdout);
		if (fgets(line, sizeof(line), stdin))
			DTRACE_PROBE2(gousdt_calls, left__start, 1L, "");
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "exec")) {
		if (fgets(line, sizeof(line), stdin))
			DTRACE_PROBE2(gousdt_calls, left__start, 1L, "");
		argv[1] = "again";
		execv("/proc/self/exe", argv);
	}
	if (argc > 1 && (!strcmp(argv[1], "end") || !strcmp(argv[1], "again"))) {
		printf("ok\n");
		fflush(stdout);
		while (fgets(line, sizeof(line), stdin)) {
			if (!strcmp(line, "call\n"))
				DTRACE_PROBE2(gousdt_calls, left__start, 2L, "");
			DTRACE_PROBE2(gousdt_calls, left__done, -1, !strcmp(line, "call\n") ? 2L : 1L);
			if (!strcmp(argv[1], "end"))
				break;
		}
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "slowly")) {
		gousdt_statement = "web";
		if (fgets(line, sizeof(line), stdin))
			DTRACE_PROBE2(gousdt_calls, left__start, 1L, "one at a time");
		gousdt_statement = "web, later";
		printf("ok\n");
		fflush(stdout);
		if (fgets(line, sizeof(line), stdin))
			DTRACE_PROBE2(gousdt_calls, left__done, -1, 1L);
		return 0;
	}
	if (argc > 1 && !strcmp(argv[1], "always")) {
		pthread_t thread;

		for (int i = 0; i < THREADS; i++)
			pthread_create(&thread, 0, call_always, 0);
		while (fgets(line, sizeof(line), stdin))
			;
		return 0;
	}
	while (fgets(line, sizeof(line), stdin)) {
		line[strcspn(line, "\n")] = 0;
		run(line);
		fflush(stdout);
	}
	return 0;
}
