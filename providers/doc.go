// SPDX-License-Identifier: BSD-2-Clause

// Package providers knows what the arguments of well-known probes mean: their
// names, which are texts, and what the values of enumerations are called.
//
// An ELF note says where an argument is, and not what it is. The provider
// definition has the meaning: a file that ends in .d, in the language of DTrace
// and SystemTap. The build of an application makes its probes of that file.
//
//	enum LWLockMode { LW_EXCLUSIVE, LW_SHARED, LW_WAIT_UNTIL_FREE };
//
//	provider postgresql {
//		probe query__start(const char *query);
//		probe lwlock__acquire(const char *tranche, LWLockMode mode);
//	};
//
// [Builtin] returns the definitions that are part of this package, for
// PostgreSQL, Python, HotSpot, Ruby, PHP, libvirt, libstdc++, the GNU C
// library, MySQL, Node.js, QEMU, Xen's xenstored, SSSD, GLib, Perl and Tcl.
// [Definitions.Parse] adds those of other files, which come from an
// application's sources or are one's own. It also reads the events that QEMU is
// installed with, /usr/share/qemu/trace-events-all.
//
// # What a definition means
//
//   - A definition is only used for sites that have as many arguments. A probe
//     whose arguments changed between versions of an application is defined
//     once for each number of them.
//   - An argument of type char *, const or not, is a text. A zero byte ends it,
//     unless the next argument has its name and _length at the end: then that
//     is the number of its bytes.
//   - An argument whose type is an enumeration has names for its values.
//     Values are written as plain numbers.
//   - Lines that begin with # are skipped, apart from "#define NAME TYPE",
//     which names a type, and "#pragma gousdt fires PROVIDER:PROBE TEXT", which
//     says when a probe fires. PROVIDER and PROBE may have wildcards.
//
// Expressions of package trace have names of their own, such as pid and comm.
// There, an argument of such a name can be named only by its number.
package providers
