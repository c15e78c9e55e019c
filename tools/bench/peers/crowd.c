/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Many processes that do nothing, each with many executable mappings of one file.
 *
 *	start PROCESSES MAPPINGS PATH	answers when all are there
 *
 * The end of the input ends them all, and this one after them.
 */
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "serve.h"

static pid_t *children;
static long started;

static void handle(int count, char **words)
{
	if (count != 4 || strcmp(words[0], "start")) {
		answer("error unknown command");
		return;
	}
	long processes = atol(words[1]), mappings = atol(words[2]);
	int fd = open(words[3], O_RDONLY | O_CLOEXEC);
	struct stat file = {};

	fstat(fd, &file);

	/* Neighbours would become one mapping: every second one is not executable. */
	for (long i = 0; i < mappings; i++)
		if (mmap(NULL, file.st_size, i % 2 ? PROT_READ : PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0) == MAP_FAILED) {
			answer("error %s: cannot be mapped", words[3]);
			return;
		}
	pid_t parent = getpid();

	children = realloc(children, (started + processes) * sizeof(*children));
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
		children[started++] = child;
	}
	answer("ok %ld", processes);
}

int main(void)
{
	signal(SIGCHLD, SIG_IGN);
	int status = serve(handle);

	for (long i = 0; i < started; i++)
		kill(children[i], SIGKILL);
	while (wait(NULL) > 0)
		;
	return status;
}
