/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Calls that are left, and calls whose start and end are in several functions, as
 * TestCallsAreKnown of package trace runs them. With C it is a C program, too.
 *
 *     frames SCENARIO
 *
 * passes START and END probes with the number of a call. It prints the numbers of
 * those that end, in that order, with a * if they failed.
 */

#include <alloca.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/personality.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <sys/sdt.h>
#ifdef __cplusplus
#include <thread>
#endif

#define ONCE __attribute__((noinline))
#define START(id) DTRACE_PROBE1(frames, q__start, id)
#define END(id) do { DTRACE_PROBE1(frames, q__done, id); printf("%d ", id); } while (0)
#define ERROR(id) do { DTRACE_PROBE1(frames, q__error, id); printf("%d* ", id); } while (0)

static void *volatile kept;
static jmp_buf out;

/* Recursive; the innermost is left by a long jump to one further out. */
ONCE static void jumps(int id, int depth, int to)
{
	START(id);
	if (depth == 0)
		longjmp(out, 1);
	if (depth == to) {
		if (!setjmp(out))
			jumps(id + 1, depth - 1, to);
	} else {
		jumps(id + 1, depth - 1, to);
	}
	END(id);
}

/* The stack pointer moves between start and end. */
ONCE static void moves(int id, int depth)
{
	char array[16 * (depth + 1)];

	kept = memset(alloca(100 * (depth + 1)), depth, 100);
	START(id);
	kept = memset(alloca(200 * (depth + 2)), depth, 100);
	kept = array;
	if (depth > 0)
		moves(id + 1, depth - 1);
	kept = memset(alloca(300), depth, 100);
	END(id);
}

/* Its start comes before the one that is around it, if it is the first. */
ONCE static int fails(int id, int depth)
{
	int bad;

	START(id);
	bad = depth == 1 ? 1 : depth > 3 ? 0 : fails(id + 1, depth - 1);
	if (bad && depth < 3) {
		ERROR(id);
		return 1;
	}
	END(id);
	return 0;
}

/* Both probes have functions of their own. */
ONCE static void begin(int id) { START(id); kept = &id; }
ONCE static void end(int id) { char room[100]; kept = room; END(id); }
ONCE static void error(int id) { char room[200]; kept = room; ERROR(id); }

ONCE static int helped(int id, int depth)
{
	int bad;

	begin(id);
	bad = depth == 1 ? 1 : depth > 3 ? 0 : helped(id + 1, depth - 1);
	if (bad && depth < 3) {
		error(id);
		return 1;
	}
	end(id);
	return 0;
}

ONCE static void leaf(int id)
{
	START(id);
	kept = &id;
	END(id);
}

/* A handler on a stack of its own, above and below the usual one. */
static volatile int in_handler;
ONCE static void handler(int signal) { in_handler++; leaf(100 + in_handler); (void)signal; }

ONCE static void interrupted(int id)
{
	START(id);
	raise(SIGUSR1);
	END(id);
}

static void signals(void)
{
	char *room = (char *)malloc(1 << 16);
	char here[1 << 16];
	struct sigaction action;

	memset(&action, 0, sizeof(action));
	action.sa_handler = handler;
	action.sa_flags = SA_ONSTACK;
	sigaction(SIGUSR1, &action, 0);
	for (int i = 0; i < 2; i++) {
		stack_t stack;

		memset(&stack, 0, sizeof(stack));
		stack.ss_sp = i ? here : room;
		stack.ss_size = 1 << 16;
		sigaltstack(&stack, 0);
		interrupted(10 + i);
	}
}

/* Two coroutines of one thread, whose calls are not inside each other. */
static ucontext_t whole, coroutine[2];
static int turn;

static void yield(void)
{
	int mine = turn;

	turn = !turn;
	swapcontext(&coroutine[mine], &coroutine[turn]);
}

ONCE static void in_turns(int id)
{
	START(id);
	yield();
	END(id);
	yield();
}

static void run_first(void) { for (int i = 0; i < 100; i++) in_turns(1000 + i); }
static void run_second(void) { for (int i = 0; i < 100; i++) in_turns(2000 + i); }

static void coroutines(void)
{
	getcontext(&coroutine[0]);
	coroutine[1] = coroutine[0];
	for (int i = 0; i < 2; i++) {
		coroutine[i].uc_stack.ss_sp = malloc(1 << 16);
		coroutine[i].uc_stack.ss_size = 1 << 16;
		coroutine[i].uc_link = &whole;
	}
	makecontext(&coroutine[0], run_first, 0);
	makecontext(&coroutine[1], run_second, 0);
	turn = 0;
	swapcontext(&whole, &coroutine[0]);
}

ONCE static void forks(int id)
{
	int status;

	START(id);
	fflush(stdout);
	if (!fork()) {
		leaf(50);
		DTRACE_PROBE1(frames, q__done, id); /* of no call of this process */
		fflush(stdout);
		_exit(0);
	}
	wait(&status);
	END(id);
}

/* Returns before the end. */
ONCE static void leaves(int id, int ends)
{
	START(id);
	if (ends)
		END(id);
}

/*
 * A program runs another one in a call, in the same frame as that: its end is of no
 * call, and the next one is.
 */
ONCE static void execs(char **argv, int helped, int again)
{
	if (again) {
		if (strstr(argv[1], "left"))
			leaves(4, helped);
		if (helped)
			begin(1);
		else
			START(1);
		argv[1][0] = 'E';
		execv(argv[0], argv);
	}
	DTRACE_PROBE1(frames, q__done, 1);
	leaf(2);
}

static void *execs_there(void *argv) { execs((char **)argv, 0, 1); return 0; }

#ifdef __cplusplus
/* A request that recovers from what one inside it has thrown. */
ONCE static void request(int id, int depth)
{
	START(id);
	if (depth == 0) {
		try {
			request(id + 500, 1);
		} catch (int) {
		}
	} else {
		throw 1;
	}
	END(id);
}

struct guard {
	int id;
	ONCE guard(int i) : id(i) { begin(id); }
	guard(guard &&other) : id(other.id) { other.id = -1; }
	ONCE ~guard() { if (id >= 0) end(id); }
};

ONCE static guard make(int id) { char room[300]; kept = room; guard g(id); return g; }

static void guards(void)
{
	for (int i = 0; i < 3; i++)
		guard warm(i);
	for (int i = 10; i < 40; i += 10) {
		guard outer(i);
		{
			guard inner = make(i + 1);
		}
	}
}
#endif

int main(int argc, char **argv)
{
	const char *scenario = argc > 1 ? argv[1] : "";

	if (!strcmp(scenario, "jumps")) {
		jumps(1, 5, 3);
		jumps(11, 4, 4);
		jumps(21, 3, 1);
	} else if (!strcmp(scenario, "moves")) {
		moves(1, 4);
	} else if (!strcmp(scenario, "fails")) {
		fails(1, 3);
		fails(11, 4);
		fails(21, 3);
	} else if (!strcmp(scenario, "helped")) {
		helped(1, 3);
		helped(11, 4);
		helped(21, 3);
	} else if (!strcmp(scenario, "signals")) {
		signals();
	} else if (!strcmp(scenario, "coroutines")) {
		coroutines();
	} else if (!strcmp(scenario, "forks")) {
		forks(1);
	} else if (strstr(scenario, "xecs")) {
		pthread_t thread;

		if (!(personality(0xffffffff) & ADDR_NO_RANDOMIZE)) { /* frames can be equal */
			personality(personality(0xffffffff) | ADDR_NO_RANDOMIZE);
			execv(argv[0], argv);
		}
		if (*scenario == 'e' && strstr(scenario, "thread")) {
			START(3);
			if (!pthread_create(&thread, 0, execs_there, argv))
				pthread_join(thread, 0);
		}
		execs(argv, !!strstr(scenario, "helped"), *scenario == 'e');
#ifdef __cplusplus
	} else if (!strcmp(scenario, "exceptions")) {
		for (int i = 0; i < 5; i++)
			std::thread([i] { request(i, 0); }).join();
		for (int i = 5; i < 10; i++)
			request(i, 0);
	} else if (!strcmp(scenario, "guards")) {
		guards();
#endif
	}
	printf("\n");
	return 0;
}
