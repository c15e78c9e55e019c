/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A user without privileges who is up to no good. It makes namespaces of its own,
 * and in them a FUSE file system that answers as it is told, with overlayfs above:
 * what root does with a file there ends up with the FUSE server. README.md lists its
 * arguments and commands.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/fuse.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOT = 1, FILE_NODE = 2, BUFFER = 1 << 17, KINDS = 64, STATX = 52, FAILED = 1, MISSING = 77 };

/* What the server and whoever gives it orders have in common. */
static struct orders {
	atomic_int stopped[KINDS], waiting[KINDS]; /* by kind of request */
	atomic_int is_forged;
	struct statx forged;
} *orders;

/* The one file of the file system, and what it has. */
static const char *name;
static int contents;
static struct statx truth;

/* Ends this program, with a status of its own for what this kernel does not have,
   or does not allow here: a chroot may not create user namespaces. */
static void fail(const char *what)
{
	int is_missing = errno == ENODEV || errno == ENXIO || errno == ENOSYS || errno == EINVAL ||
			 errno == EPERM;

	fprintf(stderr, "hostile: %s: %s\n", what, strerror(errno));
	exit(is_missing ? MISSING : FAILED);
}

static struct statx attributes(uint64_t node)
{
	struct statx s = truth;

	if (orders->is_forged)
		s = orders->forged;
	s.stx_mask = STATX_BASIC_STATS | STATX_BTIME;
	s.stx_mode = node == ROOT ? S_IFDIR | 0777 : S_IFREG | 0777;
	s.stx_nlink = node == ROOT ? 2 : 1;
	s.stx_uid = s.stx_gid = 0;
	s.stx_blksize = 4096;
	if (node == ROOT)
		s.stx_ino = ROOT;
	return s;
}

static struct fuse_attr fuse_attributes(uint64_t node)
{
	struct statx s = attributes(node);

	return (struct fuse_attr){
		.ino = s.stx_ino, .size = s.stx_size, .blocks = (s.stx_size + 511) / 512, .mode = s.stx_mode,
		.nlink = s.stx_nlink, .uid = s.stx_uid, .gid = s.stx_gid, .blksize = s.stx_blksize,
		.mtime = s.stx_mtime.tv_sec, .mtimensec = s.stx_mtime.tv_nsec,
		.ctime = s.stx_ctime.tv_sec, .ctimensec = s.stx_ctime.tv_nsec,
	};
}

static void answer(int device, const struct fuse_in_header *request, int error, const void *data, size_t size)
{
	struct fuse_out_header head = { .len = sizeof(head) + size, .error = error, .unique = request->unique };
	struct iovec parts[] = { { &head, sizeof(head) }, { (void *)data, size } };

	/* It fails for a request that has been interrupted. */
	if (writev(device, parts, 2) < 0)
		return;
}

static void serve_one(int device, struct fuse_in_header *request)
{
	static char data[BUFFER];
	void *body = request + 1;
	uint64_t node = request->nodeid;
	ssize_t size;

	switch (request->opcode) {
	case FUSE_FORGET:
	case FUSE_BATCH_FORGET:
	case FUSE_INTERRUPT:
		return;
	case FUSE_INIT: {
		struct fuse_init_in *in = body;
		struct fuse_init_out out = { .major = FUSE_KERNEL_VERSION, .max_write = 1 << 16 };

		out.minor = in->minor < FUSE_KERNEL_MINOR_VERSION ? in->minor : FUSE_KERNEL_MINOR_VERSION;
		return answer(device, request, 0, &out, sizeof(out));
	}
	case FUSE_LOOKUP: {
		struct fuse_entry_out out = { .nodeid = FILE_NODE, .attr = fuse_attributes(FILE_NODE) };

		if (strcmp(body, name))
			return answer(device, request, -ENOENT, 0, 0);
		return answer(device, request, 0, &out, sizeof(out));
	}
	case FUSE_GETATTR:
	case FUSE_SETATTR: {
		struct fuse_attr_out out = { .attr = fuse_attributes(node) };

		return answer(device, request, 0, &out, sizeof(out));
	}
	case STATX: {
		struct {
			uint64_t valid, flags, spare[2];
			struct statx statx;
		} out = { .statx = attributes(node) };

		return answer(device, request, 0, &out, sizeof(out));
	}
	case FUSE_OPEN:
	case FUSE_OPENDIR:
		return answer(device, request, 0, &(struct fuse_open_out){ 0 }, sizeof(struct fuse_open_out));
	case FUSE_READ: {
		struct fuse_read_in *in = body;

		size = pread(contents, data, in->size < BUFFER ? in->size : BUFFER, in->offset);
		return answer(device, request, 0, data, size < 0 ? 0 : size);
	}
	case FUSE_WRITE: {
		struct fuse_write_out out = { .size = ((struct fuse_write_in *)body)->size };

		return answer(device, request, 0, &out, sizeof(out));
	}
	case FUSE_STATFS:
		return answer(device, request, 0, &(struct fuse_statfs_out){ 0 }, sizeof(struct fuse_statfs_out));
	case FUSE_READDIR:
	case FUSE_RELEASE:
	case FUSE_RELEASEDIR:
	case FUSE_FLUSH:
	case FUSE_FSYNC:
		return answer(device, request, 0, 0, 0);
	default:
		return answer(device, request, -ENOSYS, 0, 0);
	}
}

/* Serves until the file system is gone, or the input of this program has ended. */
static void serve(int device)
{
	static char request[BUFFER];
	struct fuse_in_header *head = (void *)request;

	for (;;) {
		struct pollfd ready[] = { { .fd = device, .events = POLLIN }, { .fd = 0 } };

		if (poll(ready, 2, -1) < 0 && errno != EINTR)
			exit(FAILED);
		if (ready[1].revents)
			exit(0);
		if (read(device, request, sizeof(request)) < 0) {
			if (errno == ENODEV)
				exit(0);
			continue;
		}
		if (head->opcode < KINDS && orders->stopped[head->opcode]) {
			orders->waiting[head->opcode]++;
			continue; /* for good */
		}
		serve_one(device, head);
	}
}

static void write_file(const char *path, const char *text)
{
	int fd = open(path, O_WRONLY);

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		fail(path);
	close(fd);
}

/* A parent that is killed while it waits for the server keeps its descriptors, so
   that no input ends. Another user or namespace takes the signal away. */
static void end_with_parent(void)
{
	prctl(PR_SET_PDEATHSIG, SIGKILL);
}

/* Becomes the user, root of a user namespace in which it is alone. */
static void become(uid_t user)
{
	char map[64];

	if (setgroups(0, 0) || setgid(user) || setuid(user))
		fail("setuid");
	/* So that its files in proc are its own. */
	prctl(PR_SET_DUMPABLE, 1);
	if (unshare(CLONE_NEWUSER | CLONE_NEWNS))
		fail("unshare");
	end_with_parent();
	write_file("/proc/self/setgroups", "deny");
	snprintf(map, sizeof(map), "0 %d 1", (int)user);
	write_file("/proc/self/uid_map", map);
	write_file("/proc/self/gid_map", map);
	if (mount(0, "/", 0, MS_REC | MS_PRIVATE, 0))
		fail("mount private");
}

/* Mounts FUSE and returns the process that serves it. */
static pid_t mount_fuse(void)
{
	char options[128];
	int device = open("device", O_RDWR);
	pid_t server;

	if (device < 0)
		fail("open the FUSE device");
	snprintf(options, sizeof(options), "fd=%d,rootmode=40000,user_id=0,group_id=0,allow_other", device);
	if (mount("hostile", "fuse", "fuse", 0, options))
		fail("mount FUSE");
	server = fork();
	if (server == 0) {
		end_with_parent();
		serve(device);
	}
	close(device);
	return server;
}

static void *unmap(void *page)
{
	munmap(page, 4096);
	return 0;
}

static void *map_when_stuck(void *ignored)
{
	(void)ignored;
	while (!orders->waiting[FUSE_WRITE])
		sched_yield();
	orders->waiting[0]++;
	return mmap(0, 4096, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* Unmaps a page of FUSE that was written to, which waits for the server, while
   another thread waits to map something: nobody else gets at the mappings. */
static const char *get_stuck(const char *path)
{
	pthread_t unmaps, maps;
	int fd = open(path, O_RDWR);
	char *page = mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

	if (page == MAP_FAILED)
		return strerror(errno);
	orders->stopped[FUSE_WRITE] = 1;
	*page = 1;
	if (pthread_create(&maps, 0, map_when_stuck, 0) || pthread_create(&unmaps, 0, unmap, page))
		return "pthread_create failed";
	while (!orders->waiting[0])
		sched_yield();
	return 0;
}

static const char *map_code(const char *path)
{
	int fd = open(path, O_RDONLY);
	void *page = mmap(0, 4096, PROT_READ | PROT_EXEC, MAP_PRIVATE, fd, 0);

	return page == MAP_FAILED ? strerror(errno) : 0;
}

static const char *forge(const char *numbers)
{
	struct statx s = truth;
	unsigned long long inode, size;
	long long born, modified, changed;

	if (sscanf(numbers, "%llu %llu %lld %lld %lld", &inode, &size, &born, &modified, &changed) != 5)
		return "five numbers";
	s.stx_ino = inode;
	s.stx_size = size;
	s.stx_btime = (struct statx_timestamp){ .tv_sec = born / 1000000000, .tv_nsec = born % 1000000000 };
	s.stx_mtime = (struct statx_timestamp){ .tv_sec = modified / 1000000000, .tv_nsec = modified % 1000000000 };
	s.stx_ctime = (struct statx_timestamp){ .tv_sec = changed / 1000000000, .tv_nsec = changed % 1000000000 };
	orders->forged = s;
	orders->is_forged = 1;
	return 0;
}

static const char *mount_overlay(void)
{
	static const char options[] =
		"userxattr,lowerdir=fuse,upperdir=writable/upper,workdir=writable/work";

	return mount("overlay", "merged", "overlay", 0, options) ? strerror(errno) : 0;
}

static const char *command(char *line, pid_t server)
{
	char *operand = line + strcspn(line, " ");
	int kind;

	if (*operand)
		*operand++ = 0;
	kind = atoi(operand) % KINDS;
	if (!strcmp(line, "pid"))
		return 0;
	if (!strcmp(line, "mount"))
		return mount_overlay();
	if (!strcmp(line, "forge"))
		return forge(operand);
	if (!strcmp(line, "map"))
		return map_code(operand);
	if (!strcmp(line, "stuck"))
		return get_stuck(operand);
	if (!strcmp(line, "freeze"))
		return kill(server, SIGSTOP) ? strerror(errno) : 0;
	if (!strcmp(line, "stop")) {
		orders->stopped[kind] = 1;
		return 0;
	}
	if (!strcmp(line, "await")) {
		while (!orders->waiting[kind])
			sched_yield();
		return 0;
	}
	if (!strcmp(line, "exec")) {
		printf("ok exec\n");
		execl(operand, operand, (char *)0);
		return strerror(errno);
	}
	return "no such command";
}

int main(int count, char **arguments)
{
	char line[4096];
	pid_t server;

	setvbuf(stdout, 0, _IONBF, 0);
	if (count == 1)
		return 0; /* as every traced program: it starts, and ends with its input */
	if (count != 5 || chdir(arguments[2]))
		fail("hostile USER DIRECTORY NAME CONTENTS");
	name = arguments[3];
	contents = open(arguments[4], O_RDONLY);
	if (contents < 0 || statx(contents, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &truth))
		fail(arguments[4]);
	orders = mmap(0, sizeof(*orders), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	become(atoi(arguments[1]));
	server = mount_fuse();
	if (mount("writable", "writable", "tmpfs", 0, 0) || mkdir("writable/upper", 0777) ||
	    mkdir("writable/work", 0777))
		fail("mount tmpfs");
	while (fgets(line, sizeof(line), stdin)) {
		const char *wrong;

		line[strcspn(line, "\n")] = 0;
		wrong = command(line, server);
		if (wrong)
			printf("error %s: %s\n", line, wrong);
		else
			printf("ok %d\n", (int)server);
	}
	return 0;
}
