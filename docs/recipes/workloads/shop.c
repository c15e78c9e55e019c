/* SPDX-License-Identifier: BSD-2-Clause */
// A fruit shop with four sellers, who share a till. Every hour it opens a stall.
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pthread_mutex_t till = PTHREAD_MUTEX_INITIALIZER;
static pthread_mutex_t scales = PTHREAD_MUTEX_INITIALIZER;
static long sold;

__attribute__((noinline)) static void weigh(void)
{
	pthread_mutex_lock(&scales);
	pthread_mutex_unlock(&scales);
}

__attribute__((noinline)) static void sell(long price)
{
	pthread_mutex_lock(&till);
	for (volatile int coins = 0; coins < 2000; coins++)
		sold += price;
	pthread_mutex_unlock(&till);
}

static void *seller(void *price)
{
	for (;;) {
		weigh();
		sell((long)price);
		usleep(200);
	}
}

__attribute__((noinline)) static void stock(void)
{
	char *shelves[256];

	for (int i = 0; i < 256; i++)
		memset(shelves[i] = malloc(4000), 1, 4000);
	for (int i = 0; i < 256; i++)
		free(shelves[i]);
}

static void *stall(void *name)
{
	void *library = dlopen(name, RTLD_NOW);

	stock();
	if (library)
		dlclose(library);
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;

	for (long price = 1; price <= 4; price++)
		pthread_create(&thread, NULL, seller, (void *)price);
	for (;;) {
		pthread_create(&thread, NULL, stall, argc > 1 ? argv[1] : "libm.so.6");
		pthread_join(thread, NULL);
		usleep(20000);
	}
}
