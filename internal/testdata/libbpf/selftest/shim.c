/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * In the place of libbpf: has the process that started this one do what
 * prog_tests/usdt.c of Linux' selftests, and the skeletons that bpftool
 * generates for it, ask libbpf for. A request is a line on file descriptor 3,
 * the answer one on 4: a number, negative for an error, and more for some.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "test_progs.h"

struct bpf_program {
	const char *object, *name;
};

struct bpf_link {
	long id;
};

static FILE *requests, *answers;
static char answer[4096]; /* its last line */

static long ask(const char *format, ...)
{
	va_list args;

	va_start(args, format);
	vfprintf(requests, format, args);
	va_end(args);
	fputc('\n', requests);
	fflush(requests);
	if (!fgets(answer, sizeof answer, answers))
		exit(2);
	return strtol(answer, NULL, 10);
}

static struct bpf_link *link_of(long id)
{
	struct bpf_link *link = malloc(sizeof *link);

	link->id = id;
	return link;
}

int bpf_object__open_skeleton(struct bpf_object_skeleton *s, const struct bpf_object_open_opts *opts)
{
	for (int i = 0; i < s->prog_cnt; i++) {
		*s->progs[i].prog = malloc(sizeof **s->progs[i].prog);
		**s->progs[i].prog = (struct bpf_program){ s->name, s->progs[i].name };
	}
	return ask("load %s", s->name);
}

/* Maps are shared as with libbpf, so that programs write where the test reads. */
int bpf_object__load_skeleton(struct bpf_object_skeleton *s)
{
	for (int i = 0; i < s->map_cnt; i++) {
		const char *section = strchr(s->maps[i].name, '.');
		long theirs, ours, owner;

		if (!s->maps[i].mmaped || strcmp(section, ".bss"))
			continue;
		theirs = ask("map %s %s", s->name, section);
		owner = syscall(SYS_pidfd_open, getppid(), 0);
		ours = syscall(SYS_pidfd_getfd, owner, theirs, 0);
		*s->maps[i].mmaped = mmap(NULL, getpagesize(), PROT_READ | PROT_WRITE, MAP_SHARED, ours, 0);
		if (*s->maps[i].mmaped == MAP_FAILED)
			return -errno;
		close(owner);
		close(ours);
	}
	return 0;
}

int bpf_object__attach_skeleton(struct bpf_object_skeleton *s)
{
	long err = ask("attach %s %d", s->name, getpid());

	for (char *word = strtok(answer, " \n"); word && !err; word = strtok(NULL, " \n"))
		for (int i = 0; i < s->prog_cnt; i++) {
			size_t n = strlen(s->progs[i].name);

			if (!strncmp(word, s->progs[i].name, n) && word[n] == '=')
				*s->progs[i].link = link_of(atol(word + n + 1));
		}
	return err;
}

void bpf_object__detach_skeleton(struct bpf_object_skeleton *s)
{
}

void bpf_object__destroy_skeleton(struct bpf_object_skeleton *s)
{
	ask("destroy %s", s->name);
}

struct bpf_link *bpf_program__attach_usdt(const struct bpf_program *prog, pid_t pid, const char *path,
		const char *provider, const char *name, const struct bpf_usdt_opts *opts)
{
	long id = ask("usdt %s %s %d %d %s %s %s %llu", prog->object, prog->name, getpid(), pid, path,
		      provider, name, opts ? (unsigned long long)opts->usdt_cookie : 0);

	if (id > 0)
		return link_of(id);
	errno = -id;
	return NULL;
}

int bpf_link__destroy(struct bpf_link *link)
{
	long err = link ? ask("detach %ld", link->id) : 0;

	free(link);
	return err;
}

static const char *subtest;

bool test__start_subtest(const char *name)
{
	subtest = name;
	printf("run %s\n", name);
	return true;
}

bool assert_that(bool holds, const char *name, long long got, long long want)
{
	if (holds)
		printf("ok %s/%s\n", subtest, name);
	else
		printf("FAIL %s/%s: %lld, not %lld\n", subtest, name, got, want);
	fflush(stdout);
	return holds;
}

void test_usdt(void);

int main(void)
{
	requests = fdopen(3, "w");
	answers = fdopen(4, "r");
	fcntl(3, F_SETFD, FD_CLOEXEC);
	fcntl(4, F_SETFD, FD_CLOEXEC);
	test_usdt();
	return 0;
}
