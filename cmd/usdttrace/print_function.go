// SPDX-License-Identifier: BSD-2-Clause

package main

import "github.com/ianlancetaylor/demangle"

const (
	// maxMangled bounds the work for a name, which is a stranger's: a name may
	// refer to its own parts again and again.
	maxMangled = 512
	// maxReadable is the power of two that bounds what it becomes.
	maxReadable = 10
)

// readableName returns the name of a function as its C++ or Rust source has it,
// without parameters, which addresses tell better. Other names, and very long
// ones, are returned as they are.
func readableName(symbol string) string {
	if len(symbol) > maxMangled {
		return symbol
	}
	return demangle.Filter(symbol, demangle.NoParams, demangle.MaxLength(maxReadable))
}
