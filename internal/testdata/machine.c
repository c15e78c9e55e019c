/* SPDX-License-Identifier: BSD-2-Clause */

/* Places that only one machine has. The functions without a body here are in
   machine_*.S. */

#include <stdint.h>

#include "groups.h"
#include "site.h"
#include "values.h"

#if defined(__x86_64__) || defined(__i386__) || defined(__s390x__) ||                              \
	defined(__aarch64__) || defined(__riscv)
#define HAVE_REGISTERS 1
void fire_registers_assembly(void);

/* Every general register, by every name it has. */
static const char *fire_registers(void)
{
	fire_registers_assembly();
	return 0;
}
#endif

#if defined(__x86_64__)

int fire_red_zone_nop(int value);
int fire_red_zone_nop10(int value);
int fire_red_zone_nop5(int value);

/* The functions are leaves that keep a pattern in the 128 bytes below their
   stack pointer: nobody may write there, a tracer least of all. */
static const char *fire_nop(void)
{
	return fire_red_zone_nop(S32) ? "red zone overwritten" : 0;
}

static const char *fire_nop10(void)
{
	return fire_red_zone_nop10(S32) ? "red zone overwritten" : 0;
}

static const char *fire_nop5(void)
{
	return fire_red_zone_nop5(S32) ? "red zone overwritten" : 0;
}

/* Arguments relative to the place of the site, in every spelling. */
__attribute__((used)) static volatile int32_t gousdt_array[4] = {11, -22, 33, -44};
__attribute__((used)) static volatile int gousdt_ambiguous = 1;

ONCE static const char *fire_relative(void)
{
	__asm__ volatile("gousdt_relative:\n"
			 SITE("gousdt_test", "relative", "0",
			      "-4@gousdt_array(%%rip) -4@gousdt_array+4(%%rip)"
			      " -4@8+gousdt_array(%%rip) -4@12+gousdt_array-8(%%rip)"
			      " 8@%%rip 4@no_such_symbol(%%rip) 4@gousdt_ambiguous(%%rip)"
			      " 4f@.LC0(%%rip) 8@gousdt_relative@GOTPCREL(%%rip)"
			      " -4@%0")
			 :: "r"(gousdt_array[3]));
	return 0;
}

/* Base, index, scale and displacement, each present or absent. */
ONCE static const char *fire_index(void)
{
	static volatile int32_t words[4] __attribute__((aligned(16))) = {100, -200, 300, -400};
	static volatile int64_t longs[4] __attribute__((aligned(16))) = {S64, 2, S64, 4};
	static volatile int8_t bytes[4] = {1, 2, S8, 4};
	unsigned long two = 2;

	__asm__ volatile("" : "+r"(two));
	__asm__ volatile(SITE("gousdt_test", "index", "0",
			      "-4@(%0,%3,4) -4@4(%0,%3,4) -4@-4(%0,%3,4)"
			      " -8@(%1,%3,8) -1@(%2,%3) -1@1(%2,%3)"
			      " -4@-2(%0,%3,1) -2@(%0,%3,2) -4@4(,%4,4) -4@-12+8+4(%0)")
			 :: "r"(words), "r"(longs), "r"(bytes), "r"(two),
			    "r"((unsigned long)words / 4));
	return 0;
}

#elif defined(__i386__)

ONCE static const char *fire_index(void)
{
	static volatile int32_t words[4] __attribute__((aligned(16))) = {100, -200, 300, -400};
	unsigned long two = 2;

	__asm__ volatile("" : "+r"(two));
	__asm__ volatile(SITE("gousdt_test", "index", "0",
			      "-4@(%0,%1,4) -4@4(%0,%1,4) -4@-4(%0,%1,4) -4@4(,%2,4) -4@-12+8+4(%0)")
			 :: "r"(words), "r"(two), "r"((unsigned long)words / 4));
	return 0;
}

/* 64 bits in two registers, of which the text names one. */
ONCE static const char *fire_pairs(void)
{
	IN_REGISTER(int64_t, s64, S64);
	IN_REGISTER(uint64_t, u64, U64);

	__asm__ volatile(SITE("gousdt_test", "pairs", "0", "-8@%k0 8@%k1 -4@$17")
			 :: "r"(s64), "r"(u64));
	__asm__ volatile(SITE("gousdt_test", "pairs", "0", "-8@%%eax 8@%%ecx -4@$18")
			 :: "A"(s64), "b"((uint32_t)(U64 >> 32)), "c"((uint32_t)U64));
	return 0;
}

#elif defined(__s390x__)

/* A register 0 in an address counts as 0. */
ONCE static const char *fire_index(void)
{
	static volatile int32_t words[4] = {100, -200, 300, -400};
	unsigned long eight = 8;

	__asm__ volatile("" : "+a"(eight));
	__asm__ volatile(SITE("gousdt_test", "index", "0",
			      "-4@0(%1,%0) -4@4(%1,%0) -4@4(%0) -4@4(%%r0,%0)")
			 :: "a"(words), "a"(eight));
	return 0;
}

#elif defined(__aarch64__)

ONCE static const char *fire_index(void)
{
	static volatile int32_t words[4] = {100, -200, 300, -400};
	unsigned long two = 2, eight = 8;
	/* What stands above the low 32 bits must not count. */
	unsigned long high_two = 0xabcdef0000000002, minus_one = 0x12345678ffffffff;

	__asm__ volatile("" : "+r"(two), "+r"(eight), "+r"(high_two), "+r"(minus_one));
	__asm__ volatile(SITE("gousdt_test", "index", "0",
			      "-4@[%0, %2] -4@[%0, %1, lsl 2] -4@[%0, 12] -4@[%0,#4]"
			      " -4@[%0, #:lo12:.LANCHOR0] -4@[%0]"
			      " -4@[%0, %w3, uxtw 2] -4@[%5, %w4, sxtw 2]")
			 :: "r"(words), "r"(two), "r"(eight), "r"(high_two),
			    "r"(minus_one), "r"(words + 2));
	return 0;
}

#endif

const struct group groups_machine[] = {
#if defined(HAVE_REGISTERS)
	{"registers", fire_registers, {0}},
#endif
#if defined(__x86_64__)
	{"nop", fire_nop, {0}},
	{"nop10", fire_nop10, {0}},
	{"nop5", fire_nop5, {0}},
	{"relative", fire_relative, {0}},
#endif
#if defined(__x86_64__) || defined(__i386__) || defined(__s390x__) || defined(__aarch64__)
	{"index", fire_index, {0}},
#endif
#if defined(__i386__)
	{"pairs", fire_pairs, {0}},
#endif
	{0, 0, {0}},
};
