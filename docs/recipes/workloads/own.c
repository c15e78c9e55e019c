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

static int price(const char *fruit)
{
	return 2 * strlen(fruit);
}

static void sell(const char *fruit, int number)
{
	DTRACE_PROBE(shop, sell__start);
	int total = number * price(fruit);

	if (__builtin_expect(shop_sold_semaphore, 0)) {
		/* What only a tracer needs, and costs something. */
		char receipt[64] = "one ";

		strncat(receipt, fruit, sizeof(receipt) - 5);
		DTRACE_PROBE3(shop, sold, receipt, number, total);
	}
	DTRACE_PROBE(shop, sell__done);
}

int main(void)
{
	for (int i = 0;; i++) {
		sell(i % 2 ? "apple" : "pear", i % 7);
		usleep(1000);
	}
}
