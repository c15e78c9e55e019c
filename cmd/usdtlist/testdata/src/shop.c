/* SPDX-License-Identifier: BSD-2-Clause */

/*
 * A program that runs nowhere: its probes are listed, never hit. It needs no C
 * library, so that its file stays small on every machine.
 */

#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>

#define SEMAPHORE(name) \
	unsigned short shop_##name##_semaphore __attribute__((used, section(".probes")))

SEMAPHORE(open);
SEMAPHORE(order);
SEMAPHORE(item);
SEMAPHORE(price);
SEMAPHORE(stock);
SEMAPHORE(close);

static volatile long stock_of_apples, stock_of_pears;
volatile long orders[8];

static inline __attribute__((always_inline)) void item(long number, int pieces)
{
	STAP_PROBE2(shop, item, number, pieces);
}

__attribute__((noinline)) static void order(long customer, int pieces, const char *note)
{
	volatile long total = customer + pieces;
	STAP_PROBE4(shop, order, customer, pieces, note, total);
	item(customer, pieces);
	item(pieces, -1);
	item(total, 1000);
}

#undef _SDT_HAS_SEMAPHORES

void _start(void)
{
	long number = orders[1];

	STAP_PROBE(shop, open);
	order(number, 3, "no sugar");
	item(7, 2);
	STAP_PROBE2(shop, stock, stock_of_apples, orders[number]);
	asm volatile("" : : "m"(stock_of_pears));
	STAP_PROBE(shop, close);
	for (;;)
		;
}
