/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Runs programs and measures them. A process starts its life with the memory of
 * the one that starts it, which the kernel counts as its own peak: hence this small
 * program, and not the benchmark itself.
 *
 *	run COMMAND [ARGUMENT...]	answers the nanoseconds from start to end, the peak
 *					of resident memory in KiB, and the exit status
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve.h"

static void handle(int count, char **words)
{
	struct rusage usage;
	int status;

	if (count < 2 || strcmp(words[0], "run")) {
		answer("error unknown command");
		return;
	}
	long long start = now_ns();
	pid_t child = fork();

	if (child == 0) {
		int null = open("/dev/null", O_RDWR);

		dup2(null, 0);
		dup2(null, 1);
		dup2(null, 2);
		execvp(words[1], words + 1);
		_exit(127);
	}
	if (child < 0 || wait4(child, &status, 0, &usage) < 0) {
		answer("error %s: cannot be run", words[1]);
		return;
	}
	answer("ok %lld %ld %d", now_ns() - start, usage.ru_maxrss,
	       WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
}

int main(void)
{
	return serve(handle);
}
