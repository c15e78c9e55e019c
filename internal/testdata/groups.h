/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A group is what the command "fire NAME" fires: mostly one probe of that name,
 * sometimes several that need the same preparation.
 *
 * The values passed to the probes are fixed. internal/testprog/expect.go mirrors
 * them: whoever changes one here changes it there.
 */

#ifndef GOUSDT_GROUPS_H
#define GOUSDT_GROUPS_H

struct group {
	const char *name;
	/* fire passes every site of the group once and returns 0, or what went
	   wrong in the traced program itself. */
	const char *(*fire)(void);
	/* Semaphores of the group's sites, in file order. */
	volatile unsigned short *semaphores[2];
};

#define EXPORT __attribute__((visibility("default")))

/* A site must stay one site: the compiler may neither inline nor clone. */
#if defined(__clang__)
#define ONCE __attribute__((noinline, used))
#else
#define ONCE __attribute__((noinline, noclone, used))
#endif

/* target_group returns the group with that index, or 0 past the last. */
EXPORT const struct group *target_group(unsigned int index);

/* One array per source file, each ends with an empty group. */
extern const struct group groups_header[];
extern const struct group groups_places[];
extern const struct group groups_machine[];
extern const struct group groups_sites[];
extern const struct group groups_semaphores[];

#endif
