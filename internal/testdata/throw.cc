// SPDX-License-Identifier: BSD-2-Clause

// Throws, catches and rethrows once per line on standard input, and answers it:
// the probes that fire are libstdc++'s own. A number in the line is how many calls
// deep it throws; after "signal" it throws, and catches, in a signal's handler,
// and after "pointer" it throws and catches what a pointer to an exception keeps.

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <stdexcept>

// The names are not mangled, and each function has a frame of its own on the stack.
extern "C" {

[[gnu::noipa]] void throw_it()
{
	throw std::runtime_error("thrown");
}

[[gnu::noipa]] void descend(int levels)
{
	volatile char room[200];

	room[0] = 1;
	if (levels > 0)
		descend(levels - 1);
	else
		throw_it();
	room[1] = 1; // so that no call is the last thing to do
}

[[gnu::noipa]] void throw_again(int levels)
{
	try {
		descend(levels);
	} catch (const std::runtime_error &) {
		throw;
	}
}

[[gnu::noipa]] void handle(int)
{
	try {
		descend(0);
	} catch (const std::runtime_error &) {
	}
}

[[gnu::noipa]] int interrupted()
{
	return std::raise(SIGUSR1) + 1;
}

}

int main()
{
	char line[256];

	std::signal(SIGUSR1, handle);
	while (std::fgets(line, sizeof(line), stdin)) {
		if (std::strncmp(line, "signal", 6) == 0)
			interrupted();
		if (std::strncmp(line, "pointer", 7) == 0) {
			try {
				std::rethrow_exception(std::make_exception_ptr(
					std::runtime_error("refused for customer 17")));
			} catch (const std::exception &) {
			}
		}
		try {
			throw_again(std::atoi(line));
		} catch (const std::exception &e) {
			std::printf("ok %s\n", e.what());
			std::fflush(stdout);
		}
	}
}
