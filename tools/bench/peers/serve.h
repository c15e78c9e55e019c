/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The protocol of the programs in this folder: one command per line on standard
 * input, its words separated by tabs, and one answer per line on standard output
 * that begins with "ok" or "error". The end of the input ends the program.
 */
#ifndef SERVE_H
#define SERVE_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define MAX_WORDS 16

static inline long long clock_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static inline long long now_ns(void)
{
	return clock_ns(CLOCK_MONOTONIC);
}

static inline void __attribute__((format(printf, 1, 2)))
answer(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vprintf(format, arguments);
	va_end(arguments);
	putchar('\n');
	fflush(stdout);
}

/* Call handle for each command until the input ends. */
static inline int serve(void (*handle)(int count, char **words))
{
	char *line = NULL;
	size_t room = 0;

	while (getline(&line, &room, stdin) > 0) {
		char *words[MAX_WORDS + 1] = { NULL }, *rest = line;
		int count = 0;

		line[strcspn(line, "\n")] = 0;
		while (rest && count < MAX_WORDS)
			words[count++] = strsep(&rest, "\t");
		handle(count, words);
	}
	free(line);
	return 0;
}

#endif
