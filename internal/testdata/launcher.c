/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A program without probes that starts others, as a shell does: there are machines
 * without a shell. Its arguments are what it does, one after the other; README.md
 * lists them.
 */

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static void caught(int number)
{
	static const char text[] = "caught\n";

	(void)number;
	if (write(1, text, sizeof(text) - 1) < 0)
		_exit(1);
}

static void become(const char *path)
{
	execl(path, path, (char *)0);
	fprintf(stderr, "launcher: %s: %s\n", path, strerror(errno));
	_exit(127);
}

static void run(const char *path)
{
	pid_t child = fork();

	if (child == 0)
		become(path);
	while (child < 0 || waitpid(child, 0, 0) < 0)
		if (child < 0 || errno != EINTR) {
			perror("launcher");
			exit(126);
		}
}

int main(int count, char **arguments)
{
	setvbuf(stdout, 0, _IONBF, 0);
	for (int i = 1; i + 1 < count; i += 2) {
		const char *what = arguments[i], *operand = arguments[i + 1];

		if (!strcmp(what, "run"))
			run(operand);
		else if (!strcmp(what, "exec"))
			become(operand);
		else if (!strcmp(what, "exit"))
			exit(atoi(operand));
		else if (!strcmp(what, "catch"))
			signal(atoi(operand), caught);
		else if (!strcmp(what, "kill"))
			kill(getpid(), atoi(operand));
		else if (!strcmp(what, "say"))
			puts(operand);
	}
	return 0;
}
