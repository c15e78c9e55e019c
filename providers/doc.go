// SPDX-License-Identifier: BSD-2-Clause

// Package providers knows what the arguments of well-known probes mean: their
// names, which of them are texts, and the names of the values of enumerations.
//
// An ELF note has the place of an argument, and not its meaning. That is in the
// provider definition, from which the build of an application makes its probes:
// a file that ends in .d, in the language of DTrace and SystemTap.
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
//   - An argument whose type is a pointer to a structure, as in struct request
//     *request, has members in expressions: request->id. The layout is not in
//     the definition, but in the program's debugging information.
//   - An argument of type cxx_type * is a text with the name of a C++ type as
//     compilers write it (St13runtime_error). People see it as in the source
//     (std::runtime_error).
//   - The value of an argument can be a pointer in memory: "= arg1[1]" is the
//     second of the pointers that arg1, in a register, points to.
//   - An argument whose type is an enumeration has names for its values. The
//     values in the enumeration must be plain numbers.
//   - Lines that begin with # are skipped, apart from "#define NAME TYPE",
//     which names a type, and the pragmas below.
//
// # Pragmas
//
// Each is a line that begins with #pragma gousdt. PROVIDER and PROBE may have
// wildcards.
//
//   - when PROVIDER:PROBE TEXT names the event at which a probe fires.
//   - fires PROVIDER:PROBE TEXT says on which condition it fires. A text
//     "never: REASON" is for probes that people look for and that do not exist,
//     and "missing: REASON" says which builds have the probes.
//   - note PROVIDER:PROBE ARGUMENT TEXT says what to know about the values of
//     an argument.
//   - helper PROVIDER:PROBE PROVIDER:HELPER with SYMBOL says that the probe
//     fires only while HELPER is attached, too, in files that define SYMBOL;
//     without the last two words, in all files.
//   - apart PROVIDER:PROBE says that the probe starts no call, though its name
//     and that of another end as those of a pair do.
//   - match PROVIDER:PROBE TERM says what the start and the end of a call have
//     in common, in place of the thread: an argument by its name, if a call can
//     end in another thread. TERM=TERM has another one for the end. It counts
//     where a pair is named with its provider. PROBE is the pair's name.
//   - time PROVIDER:PAIR TEXT says what the time of a pair is: that while TEXT.
//   - key PROVIDER:PROBE NAME EXPRESSION lets NAME stand for an expression at
//     these probes, unless an argument has that name.
//   - layout PROVIDER:PROBE VARIABLE->MEMBER OFFSET TEXT says where a member
//     that points to a text is, in a structure to which a variable of the
//     program points. It counts for programs whose constants have TEXT, such as
//     a version, and that come without debugging information.
//
// # Calls
//
// One call in the eyes of an operator can pass several probes: a statement of
// PostgreSQL passes query__start in one protocol, query__execute__start in
// another one, and in the first both, one inside the other. A provider's
// definition can join these in a call:
//
//	provider postgresql {
//		call statement(const char *query = global.debug_query_string) {
//			query__start .. query__done;
//			query__execute__start .. query__execute__done;
//			failed transaction__abort if global.debug_query_string == 0;
//			attempt statement__status if global.debug_query_string != 0;
//		};
//	};
//
// Each line names a probe that starts a call and the one that ends it; a probe
// that ends a call that fails; a probe that is passed before a call, which can
// already fail there; or, with over, a probe at which no call goes on any more.
// The probe counts only if its condition holds. The arguments are those of the
// start. Their values are variables of the program, or arguments of the probe:
// arg0, or by name.
//
// A line "open FUNCTION if CONDITION" says how a call is seen that began before
// the probes were attached: the condition is one on variables of the program,
// in its memory. FUNCTION, if the program has it, returns when the call began,
// in microseconds since 2000, as of PostgreSQL.
//
// Of calls inside each other the outermost counts. With the line "each;" all
// do: the last one that has started ends first. With "alone;" those count that
// overlap no other call, because the ends can come in any order:
//
//	call sort(enum sort_kind kind) {
//		alone;
//		sort__start .. sort__done;
//		over transaction__abort;
//	};
//
// Package trace and usdttrace take postgresql:statement wherever they take a
// pair of probes.
//
// # Names
//
// Expressions of package trace have names of their own, such as pid and comm.
// There, an argument of such a name can be named only by its number.
package providers
