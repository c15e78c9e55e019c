// SPDX-License-Identifier: BSD-2-Clause

// Sells fruit, until it is ended.
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

[[gnu::noinline]] int price(const std::string &fruit)
{
	if (fruit == "stone")
		throw std::invalid_argument(fruit);
	return fruit.length() * 2;
}

[[gnu::noinline]] void sell()
{
	for (const char *fruit : {"apple", "pear", "fig", "stone"}) {
		try {
			price(fruit);
		} catch (const std::invalid_argument &) {
		}
	}
}

int main()
{
	for (;;) {
		sell();
		std::this_thread::sleep_for(std::chrono::milliseconds(1));
	}
}
