/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * The program that `make demo` watches: a shop that says what it sells. One probe
 * with a text, a number and an amount, passed three times a second until somebody
 * ends the program or closes its standard input.
 */

#include <poll.h>
#include <stdio.h>
#include <sys/sdt.h>
#include <unistd.h>

struct article {
	const char *name;
	int pieces;
	double price;
};

static char receipt[64];

/* The receipt is not just for show: it reads the name, so that the name is in
   memory. A page that the program itself has not touched yet cannot be read by a
   tracer, unless its BPF program may sleep. */
__attribute__((noinline)) static void sell(const struct article *a)
{
	snprintf(receipt, sizeof(receipt), "%d %s", a->pieces, a->name);
	STAP_PROBE3(gousdt_demo, sale, a->name, a->pieces, a->price);
}

int main(void)
{
	static const struct article articles[] = {
		{"espresso", 2, 4.40}, {"croissant", 3, 5.70}, {"returned cup", -1, -0.50},
	};
	struct pollfd input = {STDIN_FILENO, POLLIN, 0};
	char discard[64];

	for (unsigned int i = 0;; i++) {
		sell(&articles[i % 3]);
		if (poll(&input, 1, 333) > 0 && read(STDIN_FILENO, discard, sizeof(discard)) <= 0)
			return 0;
	}
}
