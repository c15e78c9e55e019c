// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"github.com/ianlancetaylor/demangle"

	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/trace"
)

// maxNamePart is how many bytes are shown of a provider and of a probe's name:
// those of untrusted files may have megabytes.
const maxNamePart = 128

// probeName returns PROVIDER:NAME of a site, cut.
func probeName(site *trace.Site) string {
	return cutName(site.Provider) + ":" + cutName(site.Name)
}

func cutName(s string) string { return terminal.Cut(s, maxNamePart) }

const (
	// maxMangled bounds what is shown of a function's name, and the work for
	// it: the name is untrusted, and may refer to its own parts again and
	// again.
	maxMangled = 512
	// maxReadable is the power of two that bounds what it becomes.
	maxReadable = 10
)

// readableName returns the name of a function as its C++ or Rust source has it,
// without parameters: the address says more. Other names are returned as
// they are, and very long ones cut.
func readableName(symbol string) string {
	if len(symbol) > maxMangled {
		return terminal.Cut(symbol, maxMangled)
	}
	return demangle.Filter(symbol, demangle.NoParams, demangle.MaxLength(maxReadable))
}
