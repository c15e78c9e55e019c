/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * libbpf, doing what it is asked to.
 *
 *	version				answers its version
 *	load PATH			loads an object; answers "multi" if its usdt programs
 *					are attached by uprobe_multi links, else "perf"
 *	attach PROGRAM FILE PROVIDER NAME
 *					answers the nanoseconds it took
 *	close				closes all that is attached, one after the other
 *	drain				empties the ring buffer; answers the events
 *	ring ID				opens another ring buffer, by the ID of its map
 *	read HEADER WORDS TEXT		empties it; answers the events, the nanoseconds of
 *					processor time, and a sum of what was in them
 *	call HEADER WORDS TEXT		does the same, as a library does: it calls a
 *					function of the user's with each event
 *
 * Events are what package trace sends: with time, process and thread if HEADER is 1,
 * WORDS words as arguments, and a text of at most TEXT bytes after the first one, or
 * none if TEXT is 0.
 */
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <unistd.h>

#include "serve.h"

/* The kernel's number of the attach type, which older headers do not have. */
#define TRACE_UPROBE_MULTI 48

static struct bpf_object *object;
static struct ring_buffer *ring;
static struct bpf_link **links;
static size_t link_count;

static long sum; /* of what has been read */

static int count_event(void *context, void *data, size_t size)
{
	const long *words = data;

	for (size_t i = 0; i < size / sizeof(*words); i++)
		sum += words[i];
	++*(long *)context;
	return 0;
}

static long events;

/*
 * What a program must do to have the arguments of any probe: find the site by its
 * number, and each argument where the site says that it is. As in an event of
 * package trace there is the time by the wall clock, and a text says whether it could
 * be read and whether there is more of it.
 */
enum { ABSENT, NUMBER, UNREADABLE, CUT, WHOLE };

struct value {
	unsigned long long bits;
	const char *data;
	size_t length;
	unsigned char kind, size, state;
};

#define MAX_ARGUMENTS 12

struct site {
	const char *name;
	int header, words, text;
	struct value known[MAX_ARGUMENTS];
	int at[MAX_ARGUMENTS], status, data;
};

struct event {
	const struct site *site;
	unsigned long long time; /* since boot */
	struct timespec wall;
	unsigned int cpu, pid, tid;
	char command[16];
	int count;
	struct value arguments[MAX_ARGUMENTS];
};

#define SITES 1024

static struct site decoded;
static unsigned long long boot; /* by the wall clock */
static const struct site *sites[SITES];
static struct ring_buffer *other;
static struct event event;
static int failed;

static void set_site(char **words)
{
	struct site *s = &decoded;

	memset(s, 0, sizeof(*s));
	s->name = "bench";
	s->header = atoi(words[0]);
	s->words = atoi(words[1]);
	s->text = atoi(words[2]);
	int at = s->header ? 40 : 8;

	for (int i = 0; i < s->words && i < MAX_ARGUMENTS; i++, at += 8) {
		s->known[i] = (struct value){ .size = 8, .state = NUMBER };
		s->at[i] = at;
	}
	s->status = at;
	s->data = at + 8;
	for (int i = 0; i < SITES; i++)
		sites[i] = s;
	event.site = NULL;
	boot = clock_ns(CLOCK_REALTIME) - clock_ns(CLOCK_MONOTONIC);
}

/* The user's part: in the same function, or in one that is called. */
static inline void add_up(const struct event *e)
{
	for (int i = 0; i < e->count; i++)
		sum += e->arguments[i].bits;
	if (e->site->text && e->arguments[0].state >= CUT)
		sum += e->arguments[0].length;
}

static void __attribute__((noinline)) take_event(const struct event *e)
{
	add_up(e);
}

static void (*user)(const struct event *e);

static inline void copy(void *to, const char *from, size_t size)
{
	memcpy(to, from, size);
}

static int decode_event(void *context, void *record, size_t size)
{
	const char *raw = record;
	struct event *e = &event;
	unsigned int id;

	copy(&id, raw, sizeof(id));
	if (size < 8 || id >= SITES || !sites[id]) {
		failed++;
		return 0;
	}
	const struct site *s = sites[id];

	if (e->site != s) {
		e->site = s;
		e->count = s->words;
		memcpy(e->arguments, s->known, sizeof(s->known));
	}
	if (s->header) {
		copy(&e->cpu, raw + 4, 4);
		copy(&e->time, raw + 8, 8);
		e->wall.tv_sec = (e->time + boot) / 1000000000;
		e->wall.tv_nsec = (e->time + boot) % 1000000000;
		copy(&e->tid, raw + 16, 4);
		copy(&e->pid, raw + 20, 4);
		copy(e->command, raw + 24, 16);
	}
	for (int i = 0; i < s->words; i++) {
		struct value *v = &e->arguments[i];

		switch (v->size) {
		case 1:
		case 2:
		case 4:
			copy(&v->bits, raw + s->at[i], v->size);
			break;
		default:
			copy(&v->bits, raw + s->at[i], 8);
		}
	}
	if (s->text) {
		struct value *v = &e->arguments[0];
		long long length;

		copy(&length, raw + s->status, 8);
		if (length > 0)
			length--;
		v->state = length < 0 ? UNREADABLE : length > s->text ? CUT : WHOLE;
		v->data = raw + s->data;
		v->length = length < 0 ? 0 : length > s->text ? s->text : length;
	}
	if (user)
		user(e);
	else
		add_up(e);
	++*(long *)context;
	return 0;
}

static void open_ring(int id)
{
	static int fd = -1;

	ring_buffer__free(other);
	if (fd >= 0)
		close(fd);
	fd = bpf_map_get_fd_by_id(id);
	other = fd < 0 ? NULL : ring_buffer__new(fd, decode_event, &events, NULL);
	if (other)
		answer("ok");
	else
		answer("error map %d: %s", id, strerror(errno));
}

static void read_ring(char **site)
{
	set_site(site);
	events = sum = failed = 0;
	long long start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	ring_buffer__consume(other);
	long long spent = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;

	if (failed)
		answer("error %d records of no site", failed);
	else
		answer("ok %ld %lld %ld", events, spent, sum);
}

static void load(const char *path)
{
	object = bpf_object__open_file(path, NULL);
	if (!object || bpf_object__load(object)) {
		answer("error load %s: %s", path, strerror(errno));
		return;
	}
	int map = bpf_object__find_map_fd_by_name(object, "events");
	if (map >= 0)
		ring = ring_buffer__new(map, count_event, &events, NULL);

	struct bpf_program *program = bpf_object__next_program(object, NULL);
	int multi = bpf_program__expected_attach_type(program) == TRACE_UPROBE_MULTI;
	answer("ok %s", multi ? "multi" : "perf");
}

static void attach(char **words)
{
	struct bpf_program *program = bpf_object__find_program_by_name(object, words[1]);

	if (!program) {
		answer("error no program %s", words[1]);
		return;
	}
	long long start = now_ns();
	struct bpf_link *link = bpf_program__attach_usdt(program, -1, words[2], words[3], words[4], NULL);
	long long spent = now_ns() - start;

	if (!link) {
		answer("error attach %s:%s: %s", words[3], words[4], strerror(errno));
		return;
	}
	links = realloc(links, (link_count + 1) * sizeof(*links));
	links[link_count++] = link;
	answer("ok %lld", spent);
}

static void close_links(void)
{
	for (size_t i = 0; i < link_count; i++)
		bpf_link__destroy(links[i]);
	link_count = 0;
	answer("ok");
}

static void handle(int count, char **words)
{
	if (!strcmp(words[0], "version"))
		answer("ok %s", libbpf_version_string());
	else if (!strcmp(words[0], "load") && count == 2)
		load(words[1]);
	else if (!strcmp(words[0], "ring") && count == 2)
		open_ring(atoi(words[1]));
	else if ((!strcmp(words[0], "read") || !strcmp(words[0], "call")) && count == 4 && other) {
		user = words[0][0] == 'c' ? take_event : NULL;
		read_ring(words + 1);
	}
	else if (!object)
		answer("error nothing is loaded");
	else if (!strcmp(words[0], "attach") && count == 5)
		attach(words);
	else if (!strcmp(words[0], "close"))
		close_links();
	else if (!strcmp(words[0], "drain")) {
		events = 0;
		ring_buffer__consume(ring);
		answer("ok %ld", events);
	} else
		answer("error unknown command");
}

int main(void)
{
	libbpf_set_print(NULL);
	return serve(handle);
}
