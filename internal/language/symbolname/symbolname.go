// SPDX-License-Identifier: BSD-2-Clause

// Package symbolname makes the names of functions readable.
package symbolname

import (
	"regexp"
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/gousdt/gousdt/internal/elffile"
)

const (
	// MaxLength is the size in bytes of the longest name that is made readable.
	// It bounds the work: a name is untrusted, and may refer to its own parts
	// again and again.
	MaxLength = 512
	// maxReadable bounds a readable name to 2^maxReadable bytes.
	maxReadable = 10
)

// UnknownType is shown in the place of a text that is no name of a type.
const UnknownType = "(unknown type)"

var typeName = regexp.MustCompile(`^\*?[\w.$]+$`)

// ReadableType returns the name of a C++ type as its source has it, or
// UnknownType for a text that is no such name. Names that are cut, and those
// longer than MaxLength, are returned as they are.
func ReadableType(name string, complete bool) string {
	const prefix, means = "_ZTS", "typeinfo name for "
	if !typeName.MatchString(name) {
		return UnknownType
	} else if !complete || len(name) > MaxLength {
		return name
	}
	// GCC puts a star before the name of a type that is local to one file.
	readable, err := demangle.ToString(prefix+strings.TrimPrefix(name, "*"),
		demangle.MaxLength(maxReadable))
	if err != nil {
		return UnknownType
	}
	return strings.TrimPrefix(readable, means)
}

// Readable returns the name of a function as its C++ or Rust source has it,
// without parameters. Other names are returned as they are. Names longer than
// MaxLength are cut, and not made readable.
func Readable(symbol string) string {
	if len(symbol) > MaxLength {
		return elffile.Shorten(symbol, MaxLength)
	}
	return demangle.Filter(symbol, demangle.NoParams, demangle.MaxLength(maxReadable))
}
