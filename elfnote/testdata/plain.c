/* SPDX-License-Identifier: BSD-2-Clause */

/* A probe without a semaphore. */

#include <sys/sdt.h>

void without_semaphore(short value)
{
	STAP_PROBE1(other, plain, value);
}
