// SPDX-License-Identifier: BSD-2-Clause

// Package symbolname makes the names of functions readable.
package symbolname

import (
	"strings"

	"github.com/ianlancetaylor/demangle"

	"github.com/gousdt/gousdt/internal/truncate"
)

const (
	// MaxLength bounds what is shown of a function's name, in bytes, and the
	// work for it: the name is untrusted, and may refer to its own parts again
	// and again.
	MaxLength = 512
	// maxReadable is the power of two that bounds what it becomes.
	maxReadable = 10
)

// ReadableType returns the name of a C++ type as its source has it. Other names
// are returned as they are.
func ReadableType(name string) string {
	const prefix, means = "_ZTS", "typeinfo name for "
	if len(name) > MaxLength {
		return name
	}
	// A type of one file only has a name that is not compared.
	readable, err := demangle.ToString(prefix+strings.TrimPrefix(name, "*"),
		demangle.MaxLength(maxReadable))
	if err != nil {
		return name
	}
	return strings.TrimPrefix(readable, means)
}

// Readable returns the name of a function as its C++ or Rust source has it,
// without parameters: the address says more. Other names are returned as they
// are, and very long ones cut.
func Readable(symbol string) string {
	if len(symbol) > MaxLength {
		return truncate.Text(symbol, MaxLength)
	}
	return demangle.Filter(symbol, demangle.NoParams, demangle.MaxLength(maxReadable))
}
