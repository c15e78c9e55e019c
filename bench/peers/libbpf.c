/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * libbpf, doing what it is asked to.
 *
 *	version				answers its version
 *	load PATH			loads an object; answers "multi" if its usdt programs
 *					are attached by uprobe_multi links, else "perf"
 *	attach PROGRAM FILE PROVIDER NAME
 *					answers the nanoseconds it took
 *	close				closes all that is attached, one after the other;
 *					answers the nanoseconds
 *	drain				empties the ring buffer; answers the events
 *	memory				answers the bytes of the two support maps
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
	long long start = now_ns();

	for (size_t i = 0; i < link_count; i++)
		bpf_link__destroy(links[i]);
	long long spent = now_ns() - start;

	link_count = 0;
	answer("ok %lld", spent);
}

/* What the kernel charges for a map. */
static long map_bytes(const char *name)
{
	char path[64], line[128];
	long bytes = 0;

	snprintf(path, sizeof(path), "/proc/self/fdinfo/%d", bpf_object__find_map_fd_by_name(object, name));
	FILE *info = fopen(path, "re");
	if (!info)
		return 0;
	while (fgets(line, sizeof(line), info))
		if (sscanf(line, "memlock: %ld", &bytes) == 1)
			break;
	fclose(info);
	return bytes;
}

static void handle(int count, char **words)
{
	if (!strcmp(words[0], "version"))
		answer("ok %s", libbpf_version_string());
	else if (!strcmp(words[0], "load") && count == 2)
		load(words[1]);
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
	} else if (!strcmp(words[0], "memory"))
		answer("ok %ld", map_bytes("__bpf_usdt_specs") + map_bytes("__bpf_usdt_ip_to_spec_id"));
	else
		answer("error unknown command");
}

int main(void)
{
	libbpf_set_print(NULL);
	return serve(handle);
}
