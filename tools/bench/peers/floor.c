/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The least that listing a file's probes can cost: to open it, to read the four
 * ranges that have to be read, and to close it. Nothing is done with the notes.
 *
 *	list PATH N	does it N times; answers the nanoseconds of all
 */
#include <elf.h>
#include <fcntl.h>
#include <unistd.h>

#include "serve.h"

/* Return the size of the notes, or -1. */
static long read_notes(const char *path)
{
	long size = -1;
	Elf64_Ehdr header;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return -1;
	if (pread(fd, &header, sizeof(header), 0) != sizeof(header))
		goto out;

	size_t room = (size_t)header.e_shnum * sizeof(Elf64_Shdr);
	Elf64_Shdr *sections = malloc(room);
	if (pread(fd, sections, room, header.e_shoff) != (ssize_t)room)
		goto free_sections;

	Elf64_Shdr *table = &sections[header.e_shstrndx];
	char *names = malloc(table->sh_size);
	if (pread(fd, names, table->sh_size, table->sh_offset) != (ssize_t)table->sh_size)
		goto free_names;

	for (int i = 0; i < header.e_shnum; i++) {
		Elf64_Shdr *section = &sections[i];

		if (section->sh_type != SHT_NOTE || strcmp(names + section->sh_name, ".note.stapsdt"))
			continue;
		char *notes = malloc(section->sh_size);
		if (pread(fd, notes, section->sh_size, section->sh_offset) == (ssize_t)section->sh_size)
			size = section->sh_size;
		free(notes);
		break;
	}
free_names:
	free(names);
free_sections:
	free(sections);
out:
	close(fd);
	return size;
}

static void handle(int count, char **words)
{
	if (count != 3 || strcmp(words[0], "list")) {
		answer("error unknown command");
		return;
	}
	long times = atol(words[2]);
	long long start = now_ns();

	for (long i = 0; i < times; i++)
		if (read_notes(words[1]) < 0) {
			answer("error %s: cannot be read", words[1]);
			return;
		}
	answer("ok %lld", now_ns() - start);
}

int main(void)
{
	return serve(handle);
}
