/* SPDX-License-Identifier: BSD-2-Clause */

/* Arguments in one particular place each, on every machine. */

#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "groups.h"
#include "site.h"
#include "values.h"

/* How the machine's assembler writes a constant, and the compiler's letter for a
   vector or floating-point register. */
#if defined(__x86_64__) || defined(__i386__)
#define CONSTANT "$"
#define VECTOR "x"
#elif defined(__powerpc__)
#define CONSTANT "i"
#define VECTOR "f"
#elif defined(__aarch64__) || defined(__arm__)
#define CONSTANT ""
#define VECTOR "w"
#else
#define CONSTANT ""
#define VECTOR "f"
#endif

#if __SIZEOF_POINTER__ == 8
#define POINTER_SIZE "8"
#else
#define POINTER_SIZE "4"
#endif

/* The size before the @ rules, whatever the register's name says: all of these
   name one whole register with every byte of it in use. */
ONCE static const char *fire_narrow(void)
{
	static volatile unsigned long pattern = (unsigned long)0xfedcba9896e5d4c3ull;

#if __SIZEOF_POINTER__ == 8
	__asm__ volatile(SITE("gousdt_test", "narrow", "0",
			      "-1@%0 1@%0 -2@%0 2@%0 -4@%0 4@%0 -8@%0 8@%0")
			 :: "r"(pattern));
#else
	__asm__ volatile(SITE("gousdt_test", "narrow", "0",
			      "-1@%0 1@%0 -2@%0 2@%0 -4@%0 4@%0")
			 :: "r"(pattern));
#endif
	return 0;
}

ONCE static const char *fire_stack(void)
{
	volatile struct values v = VALUES;

	__asm__ volatile(SITE("gousdt_test", "stack", "0",
			      "-1@%0 1@%1 -2@%2 2@%3 -4@%4 4@%5 -8@%6 8@%7 4f@%8 8f@%9")
			 :: "m"(v.s8), "m"(v.u8), "m"(v.s16), "m"(v.u16), "m"(v.s32),
			    "m"(v.u32), "m"(v.s64), "m"(v.u64), "m"(v.f32), "m"(v.f64));
	return 0;
}

/* 64 bits that wrap, and constants wider than their size. */
ONCE static const char *fire_wrapping(void)
{
	__asm__ volatile(SITE("gousdt_test", "wrapping", "0",
			      "8@" CONSTANT "18446744073709551615"
			      " -8@" CONSTANT "18446744073709551615"
			      " 8@" CONSTANT "9223372036854775808"
			      " -8@" CONSTANT "-9223372036854775808"
			      " 4@" CONSTANT "-1"
			      " -4@" CONSTANT "4294967295"
			      " -1@" CONSTANT "255"
			      " 1@" CONSTANT "-1"
			      " -2@" CONSTANT "65535") ::);
	return 0;
}

/* Hand-written assembly leaves the size out: it is the register's, else a word. */
ONCE static const char *fire_sizeless(void)
{
	volatile unsigned long word = UWORD;

	__asm__ volatile(SITE("gousdt_test", "sizeless", "0", "%0 " CONSTANT "5 %1")
			 :: "r"(UWORD), "m"(word));
	return 0;
}

/* What is no number stands between numbers: a structure has no size that a
   register could hold, a vector register is not saved. */
ONCE static const char *fire_structure(void)
{
	struct {
		long a, b, c;
	} volatile s = {1, 2, 3};

	__asm__ volatile(SITE("gousdt_test", "structure", "0",
			      "-4@%0 16@%1 24@%1 -4@" CONSTANT "17")
			 :: "r"(S32), "m"(s));
	return 0;
}

ONCE static const char *fire_vector(void)
{
	__asm__ volatile(SITE("gousdt_test", "vector", "0", "-4@%0 8f@%1 4f@%2 -4@" CONSTANT "17")
			 :: "r"(S32), VECTOR(F64), VECTOR(F32));
	return 0;
}

/* More arguments than a program can read: it sees the first twelve. */
ONCE static const char *fire_fourteen(void)
{
	__asm__ volatile(SITE("gousdt_test", "fourteen", "0",
			      "-4@" CONSTANT "101 -4@" CONSTANT "102 -4@" CONSTANT "103"
			      " -4@" CONSTANT "104 -4@" CONSTANT "105 -4@" CONSTANT "106"
			      " -4@" CONSTANT "107 -4@" CONSTANT "108 -4@" CONSTANT "109"
			      " -4@" CONSTANT "110 -4@" CONSTANT "111 -4@" CONSTANT "112"
			      " -4@" CONSTANT "113 -4@" CONSTANT "114") ::);
	return 0;
}

/* Two pages, of which only the first can be read; returns the second. */
static char *border(void)
{
	static char *second;
	long page = sysconf(_SC_PAGESIZE);
	char *first;

	if (second)
		return second;
	first = mmap(0, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (first == MAP_FAILED)
		return 0;
	if (mprotect(first + page, page, PROT_NONE))
		return 0;
	second = first + page;
	return second;
}

/* The last bytes of a page: a reader that takes eight of them fails. */
ONCE static const char *fire_page_end(void)
{
	char *end = border();

	if (!end)
		return "no memory";
	*(volatile uint32_t *)(end - 4) = U32;
	__asm__ volatile(SITE("gousdt_test", "page_end", "0", "4@%0")
			 :: "m"(*(uint32_t *)(end - 4)));
	*(volatile int16_t *)(end - 2) = S16;
	__asm__ volatile(SITE("gousdt_test", "page_end", "0", "-2@%0")
			 :: "m"(*(int16_t *)(end - 2)));
	*(volatile uint8_t *)(end - 1) = U8;
	__asm__ volatile(SITE("gousdt_test", "page_end", "0", "1@%0")
			 :: "m"(*(uint8_t *)(end - 1)));
	return 0;
}

/* Memory that is not there: reading it fails, reading its neighbours does not. */
ONCE static const char *fire_fault(void)
{
	char *end = border();

	if (!end)
		return "no memory";
	__asm__ volatile(SITE("gousdt_test", "fault", "0", "-4@%0 8@%1 4@" CONSTANT "17")
			 :: "r"(S32), "m"(*(uint64_t *)end));
	return 0;
}

/* A text that is not in memory at the moment: a tracer can read it only if its BPF
   program may sleep while the page is fetched. It is the beginning of the program's
   own file, "\177ELF". */
ONCE static const char *fire_cold(void)
{
	static void *page = MAP_FAILED;
	long size = sysconf(_SC_PAGESIZE);

	if (page == MAP_FAILED) {
		int file = open("/proc/self/exe", O_RDONLY);

		page = mmap(0, size, PROT_READ, MAP_PRIVATE, file, 0);
		close(file);
	}
	if (page == MAP_FAILED || madvise(page, size, MADV_DONTNEED))
		return "no memory";
	__asm__ volatile(SITE("gousdt_test", "cold", "0", POINTER_SIZE "@%0") :: "r"(page));
	return 0;
}

/* Addresses of symbols: of a text, and of the site itself. In a program that is
   loaded anywhere, they follow from the instruction pointer. */
__attribute__((used)) static const char gousdt_text[] = TEXT;

ONCE static const char *fire_address(void)
{
	__asm__ volatile(".type gousdt_here, %%function\n"
			 "gousdt_here:\n"
			 SITE("gousdt_test", "address", "0",
			      POINTER_SIZE "@" CONSTANT "gousdt_text "
			      POINTER_SIZE "@" CONSTANT "gousdt_here"
			      " -4@" CONSTANT "17") ::);
	return 0;
}

/* A base of 0 says nothing: the location must be taken as it is, in a program
   whose other notes have a base. */
ONCE static const char *fire_zero_base(void)
{
	__asm__ volatile("7730: " SITE_NOP "\n"
			 NOTE_BASE("0", "7730b", "gousdt_zero_base", "zero_base", "0",
				   "-4@" CONSTANT "17") ::);
	return 0;
}

/* The linker may leave the same note twice: the probe still fires once. */
ONCE static const char *fire_duplicate(void)
{
	__asm__ volatile("7710: " SITE_NOP "\n"
			 NOTE("7710b", "gousdt_test", "duplicate", "0", "-4@" CONSTANT "17")
			 NOTE("7710b", "gousdt_test", "duplicate", "0", "-4@" CONSTANT "17") ::);
	return 0;
}

/* Names are bytes: colons, quotes, a blank, and a sequence that would turn a
   terminal red. */
ONCE static const char *fire_names(void)
{
	__asm__ volatile(SITE("gousdt::names", "with::colons", "0", "-4@" CONSTANT "1")
			 SITE("gousdt::names", "a \\\"quoted\\\" name", "0", "-4@" CONSTANT "2")
			 SITE("gousdt::names", "\\033[31mred", "0", "-4@" CONSTANT "3") ::);
	return 0;
}

/* Never fired: a note whose location is the middle of the program's own
   instructions. Attaching to it would destroy them. */
ONCE static const char *fire_broken(void)
{
	static volatile int counter;

	__asm__ volatile(NOTE("7720f", "gousdt_broken", "no_nop", "0", "-4@" CONSTANT "17")
			 "7720:\n" ::);
	counter++;
	return 0;
}

const struct group groups_places[] = {
	{"narrow", fire_narrow, {0}},
	{"stack", fire_stack, {0}},
	{"wrapping", fire_wrapping, {0}},
	{"sizeless", fire_sizeless, {0}},
	{"structure", fire_structure, {0}},
	{"vector", fire_vector, {0}},
	{"fourteen", fire_fourteen, {0}},
	{"page_end", fire_page_end, {0}},
	{"fault", fire_fault, {0}},
	{"cold", fire_cold, {0}},
	{"address", fire_address, {0}},
	{"zero_base", fire_zero_base, {0}},
	{"duplicate", fire_duplicate, {0}},
	{"names", fire_names, {0}},
	{"broken", fire_broken, {0}},
	{0, 0, {0}},
};
