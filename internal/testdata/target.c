/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The traced program. It does nothing until it is told to: one command per line
 * on standard input, one answer per line on standard output, the end of the input
 * ends the program. README.md lists the commands.
 */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "groups.h"

enum { MAX_THREADS = 64, MAX_FIRES = 1000000 };

static const struct group *find(const char *name)
{
	const struct group *g;

	for (unsigned int i = 0; (g = target_group(i)); i++)
		if (!strcmp(g->name, name))
			return g;
	return 0;
}

static const char *fire(const struct group *g, long times)
{
	for (long i = 0; i < times; i++) {
		const char *wrong = g->fire();

		if (wrong)
			return wrong;
	}
	return 0;
}

struct firing {
	const struct group *group;
	const char *wrong;
	long tid;
	pthread_t thread;
};

static void *fire_in_thread(void *data)
{
	struct firing *f = data;

	f->tid = syscall(SYS_gettid);
	f->wrong = f->group->fire();
	return 0;
}

/* Answers the thread IDs, in the order in which the threads were started. */
static void command_thread(const struct group *g, long threads)
{
	struct firing firings[MAX_THREADS];
	const char *wrong = 0;
	long started = 0;

	if (threads > MAX_THREADS) {
		printf("error at most %d threads\n", MAX_THREADS);
		return;
	}
	for (; started < threads; started++) {
		struct firing *f = &firings[started];

		f->group = g;
		if (pthread_create(&f->thread, 0, fire_in_thread, f)) {
			wrong = "pthread_create failed";
			break;
		}
	}
	for (long i = 0; i < started; i++) {
		pthread_join(firings[i].thread, 0);
		if (firings[i].wrong)
			wrong = firings[i].wrong;
	}
	if (wrong) {
		printf("error %s %s\n", g->name, wrong);
		return;
	}
	printf("ok %s %ld", g->name, threads);
	for (long i = 0; i < started; i++)
		printf(" %ld", firings[i].tid);
	printf("\n");
}

/* Fires from a child process and answers the PID that the child had. */
static void command_fork(const struct group *g, long times)
{
	pid_t child = fork();
	int status;

	if (child < 0) {
		printf("error fork: %s\n", strerror(errno));
		return;
	}
	if (child == 0)
		_exit(fire(g, times) ? 1 : 0);
	while (waitpid(child, &status, 0) < 0)
		if (errno != EINTR) {
			printf("error waitpid: %s\n", strerror(errno));
			return;
		}
	if (status)
		printf("error %s child status %#x\n", g->name, (unsigned int)status);
	else
		printf("ok %s %ld %ld\n", g->name, times, (long)child);
}

static void command_semaphore(const struct group *g)
{
	printf("ok %s", g->name);
	for (int i = 0; i < 2 && g->semaphores[i]; i++)
		printf(" %hu", *g->semaphores[i]);
	printf("\n");
}

static void command_list(void)
{
	const struct group *g;

	printf("ok");
	for (unsigned int i = 0; (g = target_group(i)); i++)
		printf(" %s", g->name);
	printf("\n");
}

/* Loads a library, or with an empty path unloads the one loaded last. */
static void command_load(const char *path)
{
#if defined(TARGET_STATIC)
	printf("error load %s: a static program loads nothing\n", path);
#else
	static void *loaded;

	if (*path) {
		loaded = dlopen(path, RTLD_NOW | RTLD_LOCAL);
		if (!loaded) {
			printf("error %s\n", dlerror());
			return;
		}
	} else if (!loaded || dlclose(loaded)) {
		printf("error nothing to unload\n");
		return;
	}
	printf("ok load %s\n", path);
#endif
}

static void command_leave(char **arguments);

static void command(char *line, char **arguments)
{
	char *place;
	const char *verb = strtok_r(line, " \n", &place);
	const char *name = strtok_r(0, " \n", &place);
	const char *count = strtok_r(0, " \n", &place);
	const char *wrong;
	const struct group *g;
	long times = 1;

	if (!verb) {
		printf("error empty command\n");
	} else if (!strcmp(verb, "quit")) {
		printf("ok quit\n");
		fflush(stdout);
		exit(0);
	} else if (!strcmp(verb, "pid")) {
		printf("ok pid %ld\n", (long)getpid());
	} else if (!strcmp(verb, "leave")) {
		command_leave(arguments);
	} else if (!strcmp(verb, "list")) {
		command_list();
	} else if (!strcmp(verb, "exec")) {
		/* Same process, new program: all mappings are made anew. It reads
		   its commands from the same input, where nothing may be waiting. */
		printf("ok exec\n");
		fflush(stdout);
		execv("/proc/self/exe", arguments);
		printf("error exec: %s\n", strerror(errno));
	} else if (!strcmp(verb, "load") || !strcmp(verb, "unload")) {
		command_load(*verb == 'l' && name ? name : "");
	} else if (!name || !(g = find(name))) {
		printf("error no such probe or command: %s %s\n", verb, name ? name : "");
	} else if (count && ((times = strtol(count, 0, 10)) < 0 || times > MAX_FIRES)) {
		printf("error a number from 0 to %d\n", MAX_FIRES);
	} else if (!strcmp(verb, "fire")) {
		wrong = fire(g, times);
		if (wrong)
			printf("error %s %s\n", name, wrong);
		else
			printf("ok %s %ld\n", name, times);
	} else if (!strcmp(verb, "thread")) {
		command_thread(g, times);
	} else if (!strcmp(verb, "fork")) {
		command_fork(g, times);
	} else if (!strcmp(verb, "sem")) {
		command_semaphore(g);
	} else {
		printf("error no such command: %s\n", verb);
	}
	fflush(stdout);
}

static void read_commands(char **arguments)
{
	char line[4096];

	while (fgets(line, sizeof(line), stdin))
		command(line, arguments);
}

/* Tells whether the main thread is a zombie. */
static int main_has_ended(void)
{
	char stat[512];
	FILE *file = fopen("/proc/self/stat", "r");
	size_t size = file ? fread(stat, 1, sizeof(stat) - 1, file) : 0;
	const char *state;

	if (file)
		fclose(file);
	stat[size] = 0;
	state = strrchr(stat, ')');
	return !state || !strncmp(state, ") Z", 3);
}

static void *go_on(void *arguments)
{
	while (!main_has_ended())
		sched_yield();
	printf("ok leave\n");
	fflush(stdout);
	read_commands(arguments);
	exit(0);
}

/* The main thread ends, and another one takes the commands. */
static void command_leave(char **arguments)
{
	pthread_t other;

	if (pthread_create(&other, 0, go_on, arguments)) {
		printf("error pthread_create failed\n");
		fflush(stdout);
		return;
	}
	syscall(SYS_exit, 0);
}

int main(int count, char **arguments)
{
	(void)count;
	/* Bring every page into memory that the probes' arguments are in: what the
	   program has not touched yet, a tracer cannot read. If there is not enough
	   memory that may be locked, most are in by what the program does. */
	if (!mlockall(MCL_CURRENT))
		munlockall();
	read_commands(arguments);
	return 0;
}
