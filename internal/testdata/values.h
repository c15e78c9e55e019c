/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The values that the probes pass, one of each size and sign. All have their
 * top bit set, so that a missing or a wrong sign extension shows.
 */

#ifndef GOUSDT_VALUES_H
#define GOUSDT_VALUES_H

#include <stdint.h>

#define S8 ((int8_t)-100)
#define U8 ((uint8_t)200)
#define S16 ((int16_t)-30000)
#define U16 ((uint16_t)60000)
#define S32 ((int32_t)-2000000000)
#define U32 ((uint32_t)4000000000u)
#define S64 ((int64_t)-9000000000000000001ll)
#define U64 ((uint64_t)18000000000000000001ull)
#define F32 1.5f
#define F64 (-2.25)

/* A word is as wide as a register: on 32-bit machines the low half remains. */
#define SWORD ((long)S64)
#define UWORD ((unsigned long)U64)

#define TEXT "hello, gousdt"

/* What the compiler knows nothing about, and therefore can neither turn into a
   constant nor read from a table: in a register, or in memory on the stack. */
#define IN_REGISTER(type, name, value)                                         \
	type name = (value);                                                   \
	__asm__ volatile("" : "+r"(name))
#define ON_STACK(type, name, value)                                            \
	type name = (value);                                                   \
	__asm__ volatile("" : "+m"(name))

/* One of each, for places in memory. */
struct values {
	int8_t s8;
	uint8_t u8;
	int16_t s16;
	uint16_t u16;
	int32_t s32;
	uint32_t u32;
	int64_t s64;
	uint64_t u64;
	float f32;
	double f64;
};

#define VALUES {S8, U8, S16, U16, S32, U32, S64, U64, F32, F64}

#endif
