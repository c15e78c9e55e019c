// SPDX-License-Identifier: BSD-2-Clause

// Package symbolname makes the names of functions readable.
package symbolname

import (
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

// Readable returns the name of a function as its C++ or Rust source has it,
// without parameters: the address says more. Other names are returned as they
// are, and very long ones cut.
func Readable(symbol string) string {
	if len(symbol) > MaxLength {
		return truncate.Text(symbol, MaxLength)
	}
	return demangle.Filter(symbol, demangle.NoParams, demangle.MaxLength(maxReadable))
}
