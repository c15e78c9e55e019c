// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

// Definitions say what the arguments of probes mean: their names, which of them
// are texts, the names of the values of enumerations, and which probes start
// and end a call. They are those of provider definitions, from which the builds
// of applications make probes:
//
//	enum LWLockMode { LW_EXCLUSIVE, LW_SHARED, LW_WAIT_UNTIL_FREE };
//
//	provider postgresql {
//		probe query__start(const char *query);
//		probe lwlock__acquire(const char *tranche, LWLockMode mode);
//	};
//
// docs/definitions.md in the repository describes the language. The zero value
// knows none. Definitions must not be changed while they are in use.
type Definitions defs.Definitions

// BuiltinDefinitions returns the definitions of PostgreSQL, Python, HotSpot,
// Ruby, PHP, libvirt, libstdc++, the GNU C library, MySQL, Node.js, QEMU, Xen's
// xenstored, SSSD, GLib, Perl and Tcl, which the caller may extend.
func BuiltinDefinitions() *Definitions { return (*Definitions)(defs.Builtin()) }

// Parse adds the definitions of a file. Its probes take the place of those that
// have the same names and number of arguments. The error of a malformed file
// has the name and the line, and leaves the definitions as they were. A file
// whose name begins with trace-events has the events of QEMU, and is read as
// such: QEMU is installed with /usr/share/qemu/trace-events-all.
func (d *Definitions) Parse(name string, source []byte) error {
	return (*defs.Definitions)(d).Parse(name, source)
}

// Patterns returns patterns that match the probes of a pair or call, as
// [Latency.Pair] names it, and perhaps others: for the watch of a session that
// measures it. Nil Definitions know no calls. The error says what is wrong with
// the text.
func (d *Definitions) Patterns(pair string) ([]elfnote.Pattern, error) {
	parsed, err := defs.ParsePairPattern(pair)
	if err != nil {
		return nil, err
	}
	return (*defs.Definitions)(d).Patterns(parsed), nil
}

// Argument is the definition of an argument, see [Site.Argument].
type Argument struct {
	// Name is "arg0", "arg1" and so on if there is no definition.
	Name string
	// Type is the type as the definition has it, such as "const char *", or "".
	Type string
	// IsText reports whether the argument points to a text.
	IsText bool
	// Length is the number of the argument, from 0, with the length of the text
	// in bytes, or -1 if a zero byte ends it.
	Length int
	// Values has the names of the values of an enumeration, nil if the argument
	// is of another type. It must not be changed.
	Values map[int64]string
}
