/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * What this module does, by hand in C: the least that its own work can cost.
 * All that a user gets from the module is there, and nothing else: every length of
 * the untrusted file is checked before it is used, each site is the caller's with
 * copies of its strings, and who attaches holds the same lease on the file. It
 * knows only what the measured files are: little-endian ELF64 with notes in the
 * order of the code, and sites that are one-byte nops.
 *
 *	list PATH N	lists the sites N times; answers the nanoseconds of all, and the sites
 *	attach PROGRAM OTHER PATH PROVIDER NAME
 *			attaches the program with this ID to a probe, just after it was
 *			attached to that of another file, twice; answers the nanoseconds
 *	close		closes all that is attached
 *	pass N		looks N times which processes are new, have ended, or have executed
 *			another program; answers the nanoseconds of processor time of all,
 *			and the processes
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <search.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "serve.h"

/* Limits against crafted files, as the module has them. */
#define MAX_NAMES (64 << 20)
#define MAX_NOTES (64 << 20)
#define MAX_SEGMENTS 15

/* What is read of the notes at a time. */
#define BUFFER (64 << 10)

struct file {
	int fd;
	Elf64_Ehdr header;
	Elf64_Phdr segments[MAX_SEGMENTS];
	int segment_count;
	unsigned long base, notes, notes_size;
};

/* A site is one piece of memory with its strings, which the caller frees. */
struct site {
	unsigned long location, base, semaphore, offset, semaphore_offset;
	const char *provider, *name, *arguments;
};

static const char *why; /* of the last failure */

static bool fail(const char *reason)
{
	why = reason;
	return false;
}

static bool read_all(int fd, void *to, size_t size, off_t at)
{
	ssize_t n = pread(fd, to, size, at);

	return n == (ssize_t)size || fail(n < 0 ? strerror(errno) : "the file is truncated");
}

static bool read_sections(struct file *f)
{
	Elf64_Ehdr *h = &f->header;

	if (h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shstrndx >= h->e_shnum)
		return fail("malformed section headers");
	size_t room = h->e_shnum * sizeof(Elf64_Shdr);
	Elf64_Shdr *sections = malloc(room), *table = &sections[h->e_shstrndx];
	char *names = NULL;
	bool found = false;

	if (!sections || !read_all(f->fd, sections, room, h->e_shoff))
		goto out;
	if (table->sh_type != SHT_STRTAB || table->sh_size == 0 || table->sh_size > MAX_NAMES) {
		fail("malformed section names");
		goto out;
	}
	names = malloc(table->sh_size);
	if (!names || !read_all(f->fd, names, table->sh_size, table->sh_offset))
		goto out;
	names[table->sh_size - 1] = 0;
	for (int i = 0; i < h->e_shnum; i++) {
		Elf64_Shdr *s = &sections[i];

		if (s->sh_name >= table->sh_size)
			continue;
		if (!strcmp(names + s->sh_name, ".stapsdt.base"))
			f->base = s->sh_addr;
		else if (s->sh_type == SHT_NOTE && !strcmp(names + s->sh_name, ".note.stapsdt")) {
			if (s->sh_flags & SHF_COMPRESSED || s->sh_size > MAX_NOTES || s->sh_addralign > 4) {
				fail("notes that this program does not read");
				goto out;
			}
			f->notes = s->sh_offset;
			f->notes_size = s->sh_size;
			found = true;
		}
	}
	found = found || fail("no notes");
out:
	free(names);
	free(sections);
	return found;
}

static bool open_file(struct file *f, const char *path)
{
	struct {
		Elf64_Ehdr header;
		Elf64_Phdr segments[MAX_SEGMENTS];
	} start; /* one read for both */
	Elf64_Ehdr *h = &f->header;

	f->segment_count = 0;
	f->base = 0;
	f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* does not wait for a pipe's writer */
	if (f->fd < 0)
		return fail(strerror(errno));
	ssize_t n = pread(f->fd, &start, sizeof(start), 0);

	*h = start.header;
	if (n < (ssize_t)sizeof(*h) || memcmp(h->e_ident, ELFMAG, SELFMAG))
		return fail("not an ELF file");
	if (h->e_ident[EI_CLASS] != ELFCLASS64 || h->e_ident[EI_DATA] != ELFDATA2LSB ||
	    (h->e_type != ET_DYN && h->e_type != ET_EXEC))
		return fail("a file of another kind");
	if (h->e_phentsize != sizeof(Elf64_Phdr) || h->e_phoff != sizeof(*h) || h->e_phnum > MAX_SEGMENTS ||
	    n < (ssize_t)(sizeof(*h) + h->e_phnum * sizeof(Elf64_Phdr)))
		return fail("program headers that this program does not read");
	for (int i = 0; i < h->e_phnum; i++) {
		Elf64_Phdr *s = &start.segments[i];

		if (s->p_type != PT_LOAD)
			continue;
		if (s->p_offset + s->p_filesz < s->p_offset)
			return fail("malformed program header");
		f->segments[f->segment_count++] = *s;
	}
	return read_sections(f);
}

/* Set the file offset of an address in a segment with these rights. */
static bool to_offset(const struct file *f, unsigned long address, unsigned int rights, unsigned long *offset)
{
	for (int i = 0; i < f->segment_count; i++) {
		const Elf64_Phdr *s = &f->segments[i];

		if ((s->p_flags & rights) == rights && address - s->p_vaddr < s->p_filesz) {
			*offset = address - s->p_vaddr + s->p_offset;
			return *offset != 0;
		}
	}
	return fail("an address that is in no segment");
}

/* Return the site that a note describes, or NULL. */
static struct site *new_site(const struct file *f, const char *text, size_t size)
{
	struct site s;
	const char *strings = text + 3 * sizeof(long), *end = text + size, *name, *arguments, *stop;

	if (size < 3 * sizeof(long) + 3) {
		fail("a note that is too short");
		return NULL;
	}
	memcpy(&s, text, 3 * sizeof(long));
	if (s.base && f->base && s.base != f->base) {
		s.location += f->base - s.base;
		if (s.semaphore)
			s.semaphore += f->base - s.base;
	}
	s.semaphore_offset = 0;
	if (!to_offset(f, s.location, PF_X, &s.offset) ||
	    (s.semaphore && !to_offset(f, s.semaphore, PF_W, &s.semaphore_offset)))
		return NULL;
	if (!(name = memchr(strings, 0, end - strings)) || !(arguments = memchr(name + 1, 0, end - name - 1)) ||
	    !(stop = memchr(arguments + 1, 0, end - arguments - 1))) {
		fail("a string that does not end");
		return NULL;
	}
	struct site *site = malloc(sizeof(*site) + (stop + 1 - strings));

	if (!site)
		return NULL;
	s.provider = memcpy(site + 1, strings, stop + 1 - strings);
	s.name = s.provider + (name + 1 - strings);
	s.arguments = s.provider + (arguments + 1 - strings);
	*site = s;
	return site;
}

/* Call take with each site, which it must free. */
static bool each_site(const struct file *f, bool (*take)(struct site *site, void *context), void *context)
{
	unsigned long at = f->notes, end = at + f->notes_size, highest = 0;
	size_t next = 0, have = 0;
	char *buffer = malloc(BUFFER);
	bool good = buffer != NULL;

	while (good && at + next < end) {
		Elf64_Nhdr note;
		size_t left = end - at - next, whole = sizeof(note) + 8, room = have - next;

		if (room >= whole) {
			memcpy(&note, buffer + next, sizeof(note));
			whole += ((size_t)note.n_descsz + 3) & ~3UL;
			if (note.n_namesz != 8 || note.n_type != 3 || memcmp(buffer + next + sizeof(note), "stapsdt", 8)) {
				good = fail("a note of something else");
				break;
			}
		}
		if (whole > left || whole > BUFFER) {
			good = fail("a note that reaches past its section");
			break;
		}
		if (room < whole) {
			at += next;
			next = 0;
			have = left < BUFFER ? left : BUFFER;
			good = read_all(f->fd, buffer, have, at);
			continue;
		}
		struct site *site = new_site(f, buffer + next + sizeof(note) + 8, note.n_descsz);

		if (!site || site->location <= highest) { /* else it may be a duplicate */
			free(site);
			good = site ? fail("notes out of order") : false;
			break;
		}
		highest = site->location;
		next += whole;
		good = take(site, context);
	}
	free(buffer);
	return good;
}

static bool count_site(struct site *site, void *count)
{
	++*(long *)count;
	free(site);
	return true;
}

static void list(const char *path, long times)
{
	long sites = 0;
	long long start = now_ns();

	for (long i = 0; i < times; i++) {
		struct file f;
		bool good = open_file(&f, path) && each_site(&f, count_site, &sites);

		if (f.fd >= 0)
			close(f.fd);
		if (!good) {
			answer("error %s: %s", path, why);
			return;
		}
	}
	long long spent = now_ns() - start;

	answer("ok %lld %ld", spent, sites / (times ? times : 1));
}

/*
 * Attaching. The kernel has the specs of sites by their number, which is the cookie
 * of a site. Equal argument strings share one.
 */
#define MAX_SPECS 1024
#define MAX_ARGUMENTS 12
#define ATTACHMENTS 8

struct argument {
	long value; /* a constant, or the offset from the register */
	unsigned char kind, size, is_signed, in_register;
};

struct spec {
	unsigned long count;
	struct argument arguments[MAX_ARGUMENTS];
};

/* The older headers do not have the last part of union bpf_attr. */
struct link_create {
	unsigned int program, target, type, flags;
	unsigned long path, offsets, semaphores, cookies;
	unsigned int count, multi_flags, pid, rest;
};

#define TRACE_UPROBE_MULTI 48
#define LEASE_BROKEN 62 /* a real-time signal that nothing else is known to use */

static struct attachment {
	struct site **sites; /* what the caller can ask for */
	long count;
	int link, leased;
} attached[ATTACHMENTS];

static int attached_count, specs = -1;
static unsigned int spec_count;
static struct hsearch_data spec_ids; /* by argument string, with the number plus one */
static char *spec_names[MAX_SPECS];

static long bpf(int command, void *attributes, size_t size)
{
	return syscall(SYS_bpf, command, attributes, size);
}

/* Parse a register after the %. Return its number in DWARF, or -1. */
static int parse_register(const char **text)
{
	static const char names[][4][5] = {
		{ "rax", "eax", "ax", "al" }, { "rdx", "edx", "dx", "dl" }, { "rcx", "ecx", "cx", "cl" },
		{ "rbx", "ebx", "bx", "bl" }, { "rsi", "esi", "si", "sil" }, { "rdi", "edi", "di", "dil" },
		{ "rbp", "ebp", "bp", "bpl" }, { "rsp", "esp", "sp", "spl" }, { "r8", "r8d", "r8w", "r8b" },
		{ "r9", "r9d", "r9w", "r9b" }, { "r10", "r10d", "r10w", "r10b" }, { "r11", "r11d", "r11w", "r11b" },
		{ "r12", "r12d", "r12w", "r12b" }, { "r13", "r13d", "r13w", "r13b" },
		{ "r14", "r14d", "r14w", "r14b" }, { "r15", "r15d", "r15w", "r15b" },
	};
	size_t length = strcspn(*text, " )");

	for (int i = 0; i < 16; i++)
		for (int j = 0; j < 4; j++)
			if (strlen(names[i][j]) == length && !memcmp(names[i][j], *text, length)) {
				*text += length;
				return i;
			}
	return -1;
}

/* Constants, registers, and memory at a register and an offset. */
static bool parse(const char *text, struct spec *spec)
{
	memset(spec, 0, sizeof(*spec));
	while (*text) {
		struct argument *a = &spec->arguments[spec->count];
		char *end;
		long size = strtol(text, &end, 10);
		int in = 0;

		if (spec->count == MAX_ARGUMENTS || end[0] != '@' || labs(size) > 8)
			return fail("an argument of another form");
		text = end + 1;
		a->is_signed = size < 0;
		a->size = labs(size);
		if (*text == '$') {
			a->value = strtol(text + 1, &end, 0);
			text = end;
		} else if (*text == '%') {
			text++;
			in = parse_register(&text);
			a->kind = 1;
		} else {
			a->value = strtol(text, &end, 0);
			if (end[0] != '(' || end[1] != '%')
				return fail("an address of another form");
			text = end + 2;
			in = parse_register(&text);
			if (*text++ != ')')
				return fail("an address of another form");
			a->kind = 2;
		}
		if (in < 0 || (*text && *text++ != ' '))
			return fail("an unknown register");
		a->in_register = in;
		spec->count++;
	}
	return true;
}

/* Set the number of the spec for an argument string, which the kernel then has. */
static bool spec_id(const char *arguments, unsigned long *id)
{
	ENTRY wanted = { .key = (char *)arguments }, *found;
	struct spec spec;

	if (hsearch_r(wanted, FIND, &found, &spec_ids)) {
		*id = (unsigned long)found->data;
		return true;
	}
	if (spec_count == MAX_SPECS)
		return fail("too many specs");
	if (!parse(arguments, &spec))
		return false;
	union bpf_attr update = { .map_fd = specs, .key = (unsigned long)&spec_count, .value = (unsigned long)&spec };

	if (bpf(BPF_MAP_UPDATE_ELEM, &update, sizeof(update)))
		return fail("the map of specs");
	spec_names[spec_count] = wanted.key = strdup(arguments);
	*id = ++spec_count;
	wanted.data = (void *)*id;
	return hsearch_r(wanted, ENTER, &found, &spec_ids);
}

/*
 * Hold whoever is about to write to the file until it is detached. The lease is on a
 * descriptor of its own, which stays open.
 */
static int take_lease(int file)
{
	struct f_owner_ex owner = { F_OWNER_TID, gettid() };
	int fd = fcntl(file, F_DUPFD_CLOEXEC, 0);

	if (fd >= 0 && (fcntl(fd, F_SETOWN_EX, &owner) || fcntl(fd, F_SETSIG, LEASE_BROKEN) ||
			fcntl(fd, F_SETLEASE, F_RDLCK) || fcntl(fd, F_GETLEASE) != F_RDLCK)) {
		close(fd);
		return -1;
	}
	return fd;
}

struct wanted {
	const char *provider, *name;
	struct site **sites;
	long count, room;
};

static bool keep_site(struct site *site, void *context)
{
	struct wanted *w = context;

	if (strcmp(site->provider, w->provider) || strcmp(site->name, w->name)) {
		free(site);
		return true;
	}
	if (w->count == w->room) {
		w->room = w->room ? 2 * w->room : 1;
		w->sites = realloc(w->sites, w->room * sizeof(*w->sites));
	}
	w->sites[w->count++] = site;
	return true;
}

/* What is closer together is read by one call. */
#define NEAR 4096

static bool has_nops(int fd, const struct wanted *w)
{
	char *code = malloc(BUFFER);
	bool good = code != NULL;

	for (long from = 0, to; good && from < w->count; from = to) {
		unsigned long first = w->sites[from]->offset, last = first;

		for (to = from + 1; to < w->count; to++) { /* they are in the order of the code */
			unsigned long next = w->sites[to]->offset;

			if (next > last + NEAR || next - first >= BUFFER)
				break;
			last = next;
		}
		good = read_all(fd, code, last + 1 - first, first);
		for (long i = from; good && i < to; i++)
			good = code[w->sites[i]->offset - first] == (char)0x90 || fail("no nop at a site");
	}
	free(code);
	return good;
}

static bool link_sites(int fd, int program, const struct wanted *w, struct attachment *a)
{
	unsigned long *offsets = malloc(w->count * sizeof(long)), *cookies = malloc(w->count * sizeof(long));
	char path[32];
	bool good = true;

	for (long i = 0; good && i < w->count; i++) {
		offsets[i] = w->sites[i]->offset;
		good = spec_id(w->sites[i]->arguments, &cookies[i]);
	}
	/* The path of the file may lead to another one by now. */
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	struct link_create create = { .program = program, .type = TRACE_UPROBE_MULTI, .path = (unsigned long)path,
				      .offsets = (unsigned long)offsets, .cookies = (unsigned long)cookies,
				      .count = w->count };

	if (good) {
		a->link = bpf(BPF_LINK_CREATE, &create, sizeof(create));
		good = a->link >= 0 || fail(strerror(errno));
	}
	free(offsets);
	free(cookies);
	return good;
}

static bool attach(int program, const char *path, const char *provider, const char *name)
{
	struct attachment *a = &attached[attached_count++];
	struct wanted w = { .provider = provider, .name = name };
	struct stat status;
	struct file f;
	bool good = open_file(&f, path);

	*a = (struct attachment){ .link = -1, .leased = -1 };
	if (good) {
		a->leased = take_lease(f.fd); /* a file that is being written to gets none */
		good = !fstat(f.fd, &status) || fail(strerror(errno)); /* what was written just now is read again */
	}
	good = good && each_site(&f, keep_site, &w);
	a->sites = w.sites;
	a->count = w.count;
	good = good && (w.count || fail("no such probe")) && has_nops(f.fd, &w) && link_sites(f.fd, program, &w, a);
	if (f.fd >= 0)
		close(f.fd);
	return good;
}

static void close_all(void)
{
	for (; attached_count; attached_count--) {
		struct attachment *a = &attached[attached_count - 1];

		for (long i = 0; i < a->count; i++)
			free(a->sites[i]);
		free(a->sites);
		if (a->link >= 0)
			close(a->link);
		if (a->leased >= 0)
			close(a->leased);
	}
	for (unsigned int i = 0; i < spec_count; i++)
		free(spec_names[i]);
	spec_count = 0;
	hdestroy_r(&spec_ids);
	memset(&spec_ids, 0, sizeof(spec_ids));
	hcreate_r(2 * MAX_SPECS, &spec_ids);
}

/* Attach as the other contestants do, see primed in attach.go. */
static void attach_primed(char **words)
{
	union bpf_attr by_id = { .prog_id = atoi(words[1]) };
	union bpf_attr map = { .map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = sizeof(struct spec),
			       .max_entries = MAX_SPECS };
	int program = bpf(BPF_PROG_GET_FD_BY_ID, &by_id, sizeof(by_id));
	bool good = program >= 0 || fail("no such program");

	if (specs < 0)
		specs = bpf(BPF_MAP_CREATE, &map, sizeof(map));
	good = good && (specs >= 0 || fail("no map of specs"));
	for (int i = 0; good && i < 2; i++)
		good = attach(program, words[2], words[4], words[5]);
	long long start = now_ns();

	good = good && attach(program, words[3], words[4], words[5]);
	long long spent = now_ns() - start;

	if (program >= 0)
		close(program); /* the links have it */
	if (good)
		answer("ok %lld", spent);
	else
		answer("error %s: %s", words[3], why);
}

/* What is known of a process: another program has another stack or code. */
static struct process {
	unsigned long started, code, stack;
	long seen; /* the last pass */
} *known;

#define MAX_PIDS (1 << 22)

/* Set the fields of /proc/PID/stat that matter. */
static bool read_process(int proc, const char *pid, struct process *p)
{
	char path[32], text[2048];

	snprintf(path, sizeof(path), "%s/stat", pid);
	int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	ssize_t n = read(fd, text, sizeof(text) - 1);

	close(fd);
	text[n > 0 ? n : 0] = 0;
	char *field = strrchr(text, ')'); /* the name may hold anything */

	for (int i = 2; field && i < 28; i++) {
		field = strchr(field + 1, ' ');
		switch (field ? i + 1 : 0) {
		case 22:
			p->started = strtoul(field + 1, NULL, 10);
			break;
		case 26:
			p->code = strtoul(field + 1, NULL, 10);
			break;
		case 28:
			p->stack = strtoul(field + 1, NULL, 10);
		}
	}
	return field;
}

static void pass(long times)
{
	static long number;
	DIR *proc = opendir("/proc");
	long processes = 0, changes = 0;

	known = known ? known : calloc(MAX_PIDS, sizeof(*known));
	if (!proc || !known) {
		answer("error /proc: cannot be read");
		return;
	}
	long long start = clock_ns(CLOCK_PROCESS_CPUTIME_ID);

	for (long i = 0; i < times; i++) {
		struct dirent *entry;

		number++;
		for (rewinddir(proc); (entry = readdir(proc));) {
			long pid = strtol(entry->d_name, NULL, 10);
			struct process p = { .seen = number }, *before = &known[pid];

			if (pid <= 0 || pid >= MAX_PIDS || !read_process(dirfd(proc), entry->d_name, &p))
				continue;
			processes++;
			changes += before->seen != number - 1 || before->started != p.started ||
				   before->code != p.code || before->stack != p.stack;
			*before = p;
		}
	}
	long long spent = clock_ns(CLOCK_PROCESS_CPUTIME_ID) - start;

	closedir(proc);
	answer("ok %lld %ld %ld", spent, processes / (times ? times : 1), changes);
}

static void handle(int count, char **words)
{
	if (count == 3 && !strcmp(words[0], "list"))
		list(words[1], atol(words[2]));
	else if (count == 6 && !strcmp(words[0], "attach") && attached_count + 3 <= ATTACHMENTS)
		attach_primed(words);
	else if (count == 2 && !strcmp(words[0], "pass"))
		pass(atol(words[1]));
	else if (count == 1 && !strcmp(words[0], "close")) {
		close_all();
		answer("ok");
	} else
		answer("error unknown command");
}

int main(void)
{
	sigset_t blocked;

	sigemptyset(&blocked);
	sigaddset(&blocked, LEASE_BROKEN);
	sigprocmask(SIG_BLOCK, &blocked, NULL);
	close_all();
	return serve(handle);
}
