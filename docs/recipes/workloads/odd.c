/* SPDX-License-Identifier: BSD-2-Clause */
/* Passes probes whose arguments are seldom. */
#include <unistd.h>

/* A note as sys/sdt.h writes it, with the arguments as they stand here. */
#define PROBE(name, arguments, ...) \
	__asm__ volatile("990: nop\n" \
		".pushsection .note.stapsdt,\"\",\"note\"\n" \
		".balign 4\n.4byte 992f-991f,994f-993f,3\n" \
		"991: .asciz \"stapsdt\"\n992: .balign 4\n" \
		"993: .8byte 990b,0,0\n.asciz \"odd\"\n.asciz \"" name "\"\n" \
		".asciz \"" arguments "\"\n994: .balign 4\n.popsection\n" : : __VA_ARGS__)

static volatile int counter = 42;
static volatile int table[] = {10, 20, 30};

int main(void)
{
	for (;; usleep(1000)) {
		volatile double price = 2.5;

		PROBE("plain", "-4@%%eax", "a"(7));
		PROBE("high_byte", "1@%%ah", "a"(0x0500));
		PROBE("indexed", "-4@table(,%%rdi,4)", "D"(1L), "m"(table));
		PROBE("symbol", "-4@counter(%%rip)", "m"(counter));
		PROBE("real", "8f@(%%rbx)", "b"(&price), "m"(price));
		PROBE("vector", "-4@%%eax 8f@%%xmm0", "a"(7));
#ifdef MALFORMED
		__asm__ volatile(".pushsection .note.stapsdt,\"\",\"note\"\n"
			".balign 4\n.4byte 8,4,3\n.asciz \"stapsdt\"\n.4byte 0\n.popsection");
#endif
	}
}
