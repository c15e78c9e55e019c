/* SPDX-License-Identifier: BSD-2-Clause */

/* Probes as programs write them: with sys/sdt.h, places chosen by the compiler. */

#include <stdint.h>
#include <sys/sdt.h>

#include "groups.h"
#include "site.h"
#include "values.h"

static const char text[] = TEXT;

/* 400 characters: longer than readers usually copy at first. */
#define TEN "0123456789"
#define HUNDRED TEN TEN TEN TEN TEN TEN TEN TEN TEN TEN
static const char long_text[] = HUNDRED HUNDRED HUNDRED HUNDRED;

ONCE static const char *fire_none(void)
{
	STAP_PROBE(gousdt_test, none);
	return 0;
}

ONCE static const char *fire_three(void)
{
	IN_REGISTER(int32_t, s32, S32);
	IN_REGISTER(const char *, pointer, text);
	ON_STACK(unsigned long, word, UWORD);

	STAP_PROBE3(gousdt_test, three, s32, pointer, word);
	return 0;
}

/* Registers, stack and constants together. */
ONCE static const char *fire_twelve(void)
{
	IN_REGISTER(int32_t, s8, S8);
	IN_REGISTER(uint32_t, u8, U8);
	IN_REGISTER(int32_t, s16, S16);
	ON_STACK(uint16_t, u16, U16);
	ON_STACK(int32_t, s32, S32);
	ON_STACK(uint32_t, u32, U32);
	ON_STACK(long, s64, SWORD);
	ON_STACK(unsigned long, u64, UWORD);
	IN_REGISTER(const char *, pointer, text);

	STAP_PROBE12(gousdt_test, twelve, (int8_t)s8, (uint8_t)u8, (int16_t)s16, u16, s32, u32,
		     s64, u64, 17, pointer, (unsigned char)255, (short)-2);
	return 0;
}

/* As parameters arrive: in registers, then on the stack. */
ONCE static void sizes(int8_t s8, uint8_t u8, int16_t s16, uint16_t u16, int32_t s32, uint32_t u32,
		       long s64, unsigned long u64)
{
	STAP_PROBE8(gousdt_test, sizes, s8, u8, s16, u16, s32, u32, s64, u64);
}

static const char *fire_sizes(void)
{
	sizes(S8, U8, S16, U16, S32, U32, SWORD, UWORD);
	return 0;
}

ONCE static const char *fire_constants(void)
{
	STAP_PROBE8(gousdt_test, constants, S8, U8, S16, U16, S32, U32, S64, U64);
	return 0;
}

/* Read through a pointer that the compiler knows nothing about: it leaves the
   values in memory, N(%register). */
ONCE static void memory(const struct values *v)
{
	STAP_PROBE8(gousdt_test, memory, v->s8, v->u8, v->s16, v->u16, v->s32, v->u32,
		    v->s64, v->u64);
}

static const char *fire_memory(void)
{
	static const struct values values = VALUES;
	const struct values *v = &values;

	__asm__ volatile("" : "+r"(v));
	memory(v);
	return 0;
}

ONCE static const char *fire_floats(void)
{
	ON_STACK(float, f32, F32);
	ON_STACK(double, f64, F64);

#if __SIZEOF_POINTER__ == 8
	/* Loaded, and so in a vector register: the header asks for another place. */
	float half = f32 - 1.0f;
	double large = f64 * -4e299;

	STAP_PROBE4(gousdt_test, floats, f32, f64, half, large);
#else
	/* Eight bytes do not fit a register, and the header would name half. */
	ON_STACK(float, half, 0.5f);
	ON_STACK(double, large, 9e299);

	__asm__ volatile(SITE("gousdt_test", "floats", "0", "4f@%0 8f@%1 4f@%2 8f@%3")
			 :: "m"(f32), "m"(f64), "m"(half), "m"(large));
#endif
	return 0;
}

ONCE static const char *fire_strings(void)
{
	IN_REGISTER(const char *, pointer, text);
	IN_REGISTER(const char *, long_pointer, long_text);
	IN_REGISTER(const char *, empty_pointer, "");

	STAP_PROBE3(gousdt_test, strings, pointer, long_pointer, empty_pointer);
	return 0;
}

/* Not volatile, so that the compiler names them where they are: SYMBOL(%rip) on
   x86-64, SYMBOL@GOTOFF(%register) on i386. Written below, so not constant. */
static int32_t global_s32;
static uint8_t global_u8;
static int16_t global_array[4];
static long global_word;
/* Passed by no probe. */
__attribute__((used, visibility("default"))) const char *gousdt_greeting;

ONCE static void globals(void)
{
	STAP_PROBE4(gousdt_test, globals, global_s32, global_u8, global_array[3], global_word);
}

static const char *fire_globals(void)
{
	global_s32 = S32;
	global_u8 = U8;
	global_array[3] = S16;
	global_word = SWORD;
	gousdt_greeting = text;
	globals();
	return 0;
}

/* An element with a variable index: base, index and scale. */
ONCE static void element(const int16_t *base, unsigned long index)
{
	STAP_PROBE2(gousdt_test, element, base[index], base[index + 2]);
}

static const char *fire_element(void)
{
	static volatile int16_t array[8] = {0, 0, 0, S16, 0, 1234, 0, 0};
	volatile unsigned long index = 3;

	element((const int16_t *)array, index);
	return 0;
}

/* An element of an array with a known address: position-dependent programs name
   the array itself, SYMBOL(,%index,scale). */
static int32_t table[8];

ONCE static void table_element(unsigned long index)
{
	STAP_PROBE1(gousdt_test, table_element, table[index]);
}

static const char *fire_table_element(void)
{
	volatile unsigned long index = 5;

	table[5] = S32;
	table_element(index);
	return 0;
}

const struct group groups_header[] = {
	{"none", fire_none, {0}},
	{"three", fire_three, {0}},
	{"twelve", fire_twelve, {0}},
	{"sizes", fire_sizes, {0}},
	{"constants", fire_constants, {0}},
	{"memory", fire_memory, {0}},
	{"floats", fire_floats, {0}},
	{"strings", fire_strings, {0}},
	{"globals", fire_globals, {0}},
	{"element", fire_element, {0}},
	{"table_element", fire_table_element, {0}},
	{0, 0, {0}},
};
