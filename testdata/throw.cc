// SPDX-License-Identifier: BSD-2-Clause

// Throws, catches and rethrows once per line on standard input, and answers it:
// the probes that fire are libstdc++'s own.

#include <cstdio>
#include <stdexcept>

static void throw_again()
{
	try {
		throw std::runtime_error("thrown");
	} catch (const std::runtime_error &) {
		throw;
	}
}

int main()
{
	char line[256];

	while (std::fgets(line, sizeof(line), stdin)) {
		try {
			throw_again();
		} catch (const std::exception &e) {
			std::printf("ok %s\n", e.what());
			std::fflush(stdout);
		}
	}
}
