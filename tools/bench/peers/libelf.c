/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * Listing by libelf, as a tool in C does that prints provider, name, arguments and
 * file offset of every site.
 *
 *	list PATH N	does it N times; answers the nanoseconds of all, and the sites
 */
#include <fcntl.h>
#include <gelf.h>
#include <unistd.h>

#include "serve.h"

struct found {
	long sites;
	unsigned long sum; /* of what was found, so that finding it is not optimised away */
};

static unsigned long file_offset(const GElf_Phdr *segments, size_t count, unsigned long address)
{
	for (size_t i = 0; i < count; i++)
		if (segments[i].p_type == PT_LOAD && address - segments[i].p_vaddr < segments[i].p_filesz)
			return address - segments[i].p_vaddr + segments[i].p_offset;
	return 0;
}

static void take_notes(Elf_Data *data, const GElf_Phdr *segments, size_t segment_count,
		       unsigned long base, struct found *found)
{
	GElf_Nhdr note;
	size_t name, text, next = 0;

	while ((next = gelf_getnote(data, next, &note, &name, &text)) > 0) {
		const char *bytes = data->d_buf;
		unsigned long addresses[3];

		if (note.n_type != 3 || note.n_namesz != 8 || memcmp(bytes + name, "stapsdt", 8) ||
		    note.n_descsz < sizeof(addresses) + 3)
			continue;
		memcpy(addresses, bytes + text, sizeof(addresses));

		const char *end = bytes + text + note.n_descsz;
		const char *provider = bytes + text + sizeof(addresses);
		const char *probe = memchr(provider, 0, end - provider);
		const char *arguments = probe ? memchr(probe + 1, 0, end - probe - 1) : NULL;
		if (!arguments || !memchr(arguments + 1, 0, end - arguments - 1))
			continue;
		if (base && addresses[1])
			addresses[0] += base - addresses[1];
		found->sites++;
		found->sum += file_offset(segments, segment_count, addresses[0]) + (probe - provider) +
			      (arguments - probe);
		if (addresses[2])
			found->sum += file_offset(segments, segment_count, addresses[2]);
	}
}

static int list(const char *path, struct found *found)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	Elf *elf = fd < 0 ? NULL : elf_begin(fd, ELF_C_READ, NULL);
	size_t names, segment_count;
	Elf_Scn *section = NULL;
	Elf_Data *notes = NULL;
	unsigned long base = 0;
	int result = -1;

	if (!elf || elf_getshdrstrndx(elf, &names) || elf_getphdrnum(elf, &segment_count))
		goto out;
	GElf_Phdr *segments = calloc(segment_count + 1, sizeof(*segments));
	for (size_t i = 0; i < segment_count; i++)
		gelf_getphdr(elf, i, &segments[i]);
	while ((section = elf_nextscn(elf, section))) {
		GElf_Shdr header;
		const char *name;

		if (!gelf_getshdr(section, &header) || !(name = elf_strptr(elf, names, header.sh_name)))
			continue;
		if (!strcmp(name, ".stapsdt.base"))
			base = header.sh_addr;
		else if (!strcmp(name, ".note.stapsdt"))
			notes = elf_getdata(section, NULL);
	}
	if (notes)
		take_notes(notes, segments, segment_count, base, found);
	free(segments);
	result = 0;
out:
	elf_end(elf);
	if (fd >= 0)
		close(fd);
	return result;
}

static void handle(int count, char **words)
{
	struct found found = { 0 };

	if (count != 3 || strcmp(words[0], "list")) {
		answer("error unknown command");
		return;
	}
	long times = atol(words[2]);
	long long start = now_ns();

	for (long i = 0; i < times; i++)
		if (list(words[1], &found)) {
			answer("error %s: %s", words[1], elf_errmsg(-1));
			return;
		}
	long long spent = now_ns() - start;

	answer("ok %lld %ld %lu", spent, found.sites / (times ? times : 1), found.sum);
}

int main(void)
{
	elf_version(EV_CURRENT);
	return serve(handle);
}
