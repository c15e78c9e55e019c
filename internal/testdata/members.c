/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Probes whose arguments point to structures. Each line on standard input passes
 * members:request once, and is answered by "ok" and the members' values, as the
 * program has them. "lost" passes one whose connection is a null pointer, and "many"
 * passes members:many at 100 sites, which have the argument at as many places.
 */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <sys/sdt.h>

enum method { GET = 1, PUT = 300 };

struct peer {
	uint16_t port;
	const char *host;
};

typedef struct connection {
	char pad[1000];
	int fd;
	struct peer peer;
} connection_t;

struct request {
	int8_t tiny;
	uint64_t id;
	int32_t code;
	bool kept;
	enum method method;
	float share;
	double weight;
	char *path;
	const connection_t *connection;
	struct { int16_t x, y; } place;
	union { uint32_t number; uint8_t first; };
	long length;
	struct request *next;
	unsigned bits : 3;
	char name[8]; /* no zero ends it */
	char label[16];
};

struct request *current; /* the one that is passed */

__attribute__((noinline)) static void pass(struct request *request, int32_t code)
{
	current = request;
	DTRACE_PROBE2(members, request, request, code);
}

#define TEN(f, i) f(i) f(i + 1) f(i + 2) f(i + 3) f(i + 4) f(i + 5) f(i + 6) f(i + 7) f(i + 8) f(i + 9)
#define COPY(i) copies[i] = request;
#define PASS(i) DTRACE_PROBE1(members, many, copies[i]);

__attribute__((noinline)) static void pass_many(struct request *request)
{
	struct request *copies[100];

	TEN(COPY, 0) TEN(COPY, 10) TEN(COPY, 20) TEN(COPY, 30) TEN(COPY, 40)
	TEN(COPY, 50) TEN(COPY, 60) TEN(COPY, 70) TEN(COPY, 80) TEN(COPY, 90)
	__asm__ volatile("" : : "r"(copies) : "memory"); /* may have changed them */
	TEN(PASS, 0) TEN(PASS, 10) TEN(PASS, 20) TEN(PASS, 30) TEN(PASS, 40)
	TEN(PASS, 50) TEN(PASS, 60) TEN(PASS, 70) TEN(PASS, 80) TEN(PASS, 90)
}

int main(void)
{
	struct peer peer = {8080, "example.org"};
	connection_t connection = {.fd = -7, .peer = peer};
	struct request last = {.tiny = -128, .id = 0xfedcba9876543210, .path = "/last"};
	struct request one = {.tiny = -1, .id = 42, .code = -2000000000, .kept = true, .method = PUT,
		.share = 0.25, .weight = -1e100, .path = "/index.html", .connection = &connection,
		.place = {-3, 4}, .number = 0xffffffff, .length = 6, .next = &last, .name = "fullfull", .label = "short"};
	char line[64];

	setlinebuf(stdout);
	while (fgets(line, sizeof(line), stdin)) {
		struct request *r = strcmp(line, "lost\n") ? &one : &last;

		if (!strcmp(line, "many\n")) {
			pass_many(r);
			puts("ok");
			continue;
		}
		pass(r, 5);
		if (r == &last) {
			puts("ok");
			continue;
		}
		printf("ok tiny=%d id=%llu code=%d kept=%d method=%d share=%g weight=%g path=\"%s\" "
			"connection->fd=%d connection->peer.port=%d connection->peer.host=\"%s\" "
			"place.x=%d number=%u first=%u length=%ld next->id=%llu next->path=\"%s\" "
			"name=\"%.8s\" label=\"%s\"\n", r->tiny,
			(unsigned long long)r->id, r->code, r->kept, r->method, r->share, r->weight, r->path,
			r->connection->fd, r->connection->peer.port, r->connection->peer.host, r->place.x,
			r->number, r->first, r->length, (unsigned long long)r->next->id, r->next->path,
			r->name, r->label);
		one.id++;
	}
	return 0;
}
