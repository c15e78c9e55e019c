// SPDX-License-Identifier: BSD-2-Clause

package providers

import (
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/defs"
)

// Definitions say what the arguments of probes mean, and which probes start and
// end a call. The zero value knows none. It must not be changed while it is in
// use.
type Definitions defs.Definitions

// Builtin returns the definitions that this package has, which the caller may
// extend.
func Builtin() *Definitions { return (*Definitions)(defs.Builtin()) }

// Parse adds the definitions of a file. Its probes take the place of those that
// have the same names and number of arguments. The error of a malformed file
// has the name and the line, and leaves the definitions as they were. A file
// whose name begins with trace-events has the events of QEMU, and is read as
// such.
func (d *Definitions) Parse(name string, source []byte) error {
	return (*defs.Definitions)(d).Parse(name, source)
}

// Arguments returns the definitions of the arguments of a probe that has that
// many, and whether it is defined. The caller may change the slice.
func (d *Definitions) Arguments(provider, name string, number int) ([]Argument, bool) {
	probe, ok := (*defs.Definitions)(d).Probe(provider, name, number)
	var all []Argument
	for i := range probe.Arguments {
		a := &probe.Arguments[i]
		all = append(all, Argument{Name: a.Name, Type: a.Type, IsText: a.IsText, Length: a.Length,
			Values: a.Values})
	}
	return all, ok
}

// Patterns returns patterns that match the probes of a pair or call, as
// Latency.Pair of package trace names it, and perhaps others: for the watch of
// a session that measures it. Nil Definitions know no calls. The error says
// what is wrong with the text.
func (d *Definitions) Patterns(pair string) ([]elfnote.Pattern, error) {
	parsed, err := defs.ParsePairPattern(pair)
	if err != nil {
		return nil, err
	}
	return (*defs.Definitions)(d).Patterns(parsed), nil
}

// Argument is the definition of an argument.
type Argument struct {
	// Name is "" if the definition has none.
	Name string
	// Type is the type as the definition has it, such as "const char *".
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
