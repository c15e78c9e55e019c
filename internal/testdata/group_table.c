/* SPDX-License-Identifier: BSD-2-Clause */

#include "groups.h"

EXPORT const struct group *target_group(unsigned int index)
{
	static const struct group *const tables[] = {
		groups_header, groups_places, groups_machine, groups_sites, groups_semaphores,
	};

	for (unsigned int i = 0; i < sizeof(tables) / sizeof(tables[0]); i++)
		for (const struct group *g = tables[i]; g->name; g++)
			if (index-- == 0)
				return g;
	return 0;
}
