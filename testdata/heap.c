/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A program for memory profilers: a server of pictures that takes its memory from
 * libheap.so. One request parses 100 headers of 100 bytes each, which it frees, and
 * loads one picture of 64 KiB, which it keeps until 1,000 others have come.
 *
 * It serves as many requests as the commands on its standard input say, "serve N",
 * and answers each command with "ok". With the argument "forever" it serves 100 a
 * second until it is killed.
 */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* libheap.so */
void *heap_alloc(size_t size);
void heap_free(void *memory);

enum { HEADERS = 100, HEADER_SIZE = 100, PICTURES = 1000, PICTURE_SIZE = 64 << 10 };

/* Each function of its own, as in a program that is large. */
#define FUNCTION __attribute__((noinline)) static

FUNCTION void *copy_header(void)
{
	char *header = heap_alloc(HEADER_SIZE);

	if (header)
		memset(header, ' ', HEADER_SIZE);
	return header;
}

FUNCTION void parse_request(void)
{
	void *headers[HEADERS];

	for (int i = 0; i < HEADERS; i++)
		headers[i] = copy_header();
	for (int i = 0; i < HEADERS; i++)
		heap_free(headers[i]);
}

FUNCTION void load_picture(void)
{
	static void *pictures[PICTURES];
	static int next;

	if (pictures[next])
		heap_free(pictures[next]);
	pictures[next] = heap_alloc(PICTURE_SIZE);
	next = (next + 1) % PICTURES;
}

FUNCTION void serve(int requests)
{
	for (int i = 0; i < requests; i++) {
		parse_request();
		load_picture();
	}
}

int main(int argc, char **argv)
{
	char line[64];
	int requests;

	setvbuf(stdout, 0, _IOLBF, 0);
	while (argc > 1 && !strcmp(argv[1], "forever")) {
		serve(1);
		usleep(10000);
	}
	while (fgets(line, sizeof(line), stdin)) {
		if (sscanf(line, "serve %d", &requests) == 1) {
			serve(requests);
			printf("ok serve %d\n", requests);
		} else {
			printf("error no such command\n");
		}
	}
	return 0;
}
