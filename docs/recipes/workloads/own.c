/* SPDX-License-Identifier: BSD-2-Clause */
/* Sells fruit, until it is ended. */
#define _SDT_HAS_SEMAPHORES 1
#include <sys/sdt.h>
#include <string.h>
#include <unistd.h>

/* What tracers count up, one for each probe. */
#define SEMAPHORE(probe) \
	__extension__ unsigned short shop_##probe##_semaphore \
		__attribute__((unused, section(".probes")))

SEMAPHORE(sell__start);
SEMAPHORE(sold);
SEMAPHORE(sell__done);

struct customer {
	const char *name;
	int zip;
};

struct order {
	const char *fruit;
	int number;
	const struct customer *customer;
};

static int price(const char *fruit)
{
	return 2 * strlen(fruit);
}

static void sell(const struct order *order)
{
	DTRACE_PROBE1(shop, sell__start, order);
	int total = order->number * price(order->fruit);

	if (__builtin_expect(shop_sold_semaphore, 0)) {
		/* What only a tracer needs, and costs something. */
		char receipt[64] = "one ";

		strncat(receipt, order->fruit, sizeof(receipt) - 5);
		DTRACE_PROBE3(shop, sold, receipt, order->number, total);
	}
	DTRACE_PROBE(shop, sell__done);
}

int main(void)
{
	const struct customer customers[] = {{"Ada", 10115}, {"Grace", 20095}};

	for (int i = 0;; i++) {
		struct order order = {i % 2 ? "apple" : "pear", i % 7, &customers[i % 3 > 0]};

		sell(&order);
		usleep(1000);
	}
}
