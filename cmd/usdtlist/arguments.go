// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/symbols"
)

// arguments decodes the argument strings of one file.
type arguments struct {
	symbols *symbols.Resolver
	probes  []elfnote.Probe // whose symbols are still to be found

	target argspec.Target
	buffer []argspec.Arg
}

// newArguments prepares to decode the arguments of probes. The debug file, if
// one is given, must belong to the file.
func newArguments(file *elfnote.File, debugPath string, probes []elfnote.Probe) (*arguments, error) {
	resolver, err := symbols.New(file, debugPath)
	if err != nil {
		return nil, fmt.Errorf("--debug-file: %w", err)
	}
	return &arguments{symbols: resolver, probes: probes, target: resolver.Target()}, nil
}

// decode returns a site's arguments, which are valid until the next call.
func (a *arguments) decode(site *elfnote.Site) []argspec.Arg {
	if a.probes != nil {
		a.symbols.Find(a.texts)
		a.probes = nil
	}
	a.target.Location = site.Location
	a.buffer = argspec.AppendParse(a.buffer[:0], &a.target, site.Arguments)
	return a.buffer
}

// texts yields the argument strings, of which many sites in a row may have the
// same.
func (a *arguments) texts(yield func(string) bool) {
	last := ""
	for i := range a.probes {
		for j := range a.probes[i].Sites {
			text := a.probes[i].Sites[j].Arguments
			if text != last && !yield(text) {
				return
			}
			last = text
		}
	}
}

// missing is a symbol that was asked for and is nowhere, or "".
func (a *arguments) missing() string { return a.symbols.Missing }

func (a *arguments) close() { a.symbols.Close() }
