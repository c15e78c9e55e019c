// SPDX-License-Identifier: BSD-2-Clause

// Package providers knows what the arguments of well-known probes mean: their
// names, which are texts, and how the values of enumerations are called.
//
// An ELF note says where an argument is, and not what it is. The meaning stands
// in the provider definition from which the application's build made its probes:
// a file that ends in .d, as DTrace and SystemTap read it.
//
//	enum LWLockMode { LW_EXCLUSIVE, LW_SHARED, LW_WAIT_UNTIL_FREE };
//
//	provider postgresql {
//		probe query__start(const char *query);
//		probe lwlock__acquire(const char *tranche, LWLockMode mode);
//	};
//
// [Builtin] returns the definitions that are part of this package, for
// PostgreSQL, Python, HotSpot, Ruby, PHP, libvirt, libstdc++, the GNU C library,
// MySQL and Node.js. [Definitions.Parse] adds what is in other files: those of an
// application's sources, or one's own.
//
// # What a definition means
//
//   - The number of arguments belongs to the probe: a definition is only used for
//     sites that have as many. Probes whose arguments changed between versions of
//     an application are defined once for each number.
//   - An argument of type char *, const or not, is a text that ends with a zero
//     byte. If the argument after it is called the same with _length at its end,
//     that is the number of its bytes instead.
//   - An argument whose type is an enumeration has names for its values. Values
//     are written as in C, as plain numbers.
//   - Lines that begin with # are left out, apart from "#define NAME TYPE", which
//     names a type, and from the line that says when a probe fires:
//     "#pragma gousdt fires PROVIDER:PROBE TEXT", with wildcards.
//
// Names that an expression of package trace knows by itself (pid, comm, ...) mean
// there what they always mean.
package providers
