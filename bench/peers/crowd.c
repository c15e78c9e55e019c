/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Many processes that do nothing, each with many executable mappings of one file.
 *
 *	start PROCESSES MAPPINGS PATH	answers when all are there
 *	run COUNT RATE			starts a program that ends at once, so often in a
 *					second; answers when all have been started
 *
 * The end of the input ends them all.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "serve.h"

static void start_one(void)
{
	if (vfork() == 0) {
		execl("/bin/true", "true", NULL);
		_exit(127);
	}
}

static void run(long count, long rate)
{
	long long next = now_ns();

	for (long i = 0; i < count; i++) {
		start_one();
		next += 1000000000LL / rate;
		long long left = next - now_ns();
		if (left > 0)
			usleep(left / 1000);
	}
	answer("ok %ld", count);
}

static void handle(int count, char **words)
{
	if (count == 3 && !strcmp(words[0], "run") && atol(words[2]) > 0) {
		run(atol(words[1]), atol(words[2]));
		return;
	}
	if (count != 4 || strcmp(words[0], "start")) {
		answer("error unknown command");
		return;
	}
	long processes = atol(words[1]), mappings = atol(words[2]);
	int fd = open(words[3], O_RDONLY | O_CLOEXEC);

	/* Neighbours would become one mapping: every second one is not executable. */
	for (long i = 0; i < mappings; i++)
		if (mmap(NULL, 4096, i % 2 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
			answer("error %s: cannot be mapped", words[3]);
			return;
		}
	pid_t parent = getpid();

	for (long i = 0; i < processes; i++) {
		pid_t child = fork();

		if (child < 0) {
			answer("error only %ld processes could be started", i);
			return;
		}
		if (child == 0) {
			prctl(PR_SET_PDEATHSIG, SIGKILL);
			if (getppid() != parent)
				_exit(0);
			for (;;)
				pause();
		}
	}
	answer("ok %ld", processes);
}

int main(void)
{
	signal(SIGCHLD, SIG_IGN);
	return serve(handle);
}
