// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
)

// arguments decodes the argument strings of one file.
type arguments struct {
	decoder     *argspec.Decoder
	definitions *providers.Definitions // nil without names
	buffer      []argspec.Arg

	// missing is the last argument whose symbol is nowhere, or "".
	missing string
}

func newArguments(file *elfnote.File, definitions *providers.Definitions) *arguments {
	return &arguments{decoder: argspec.NewDecoder(file), definitions: definitions}
}

// definition returns what is known of a site's probe, or nil.
func (a *arguments) definition(site *elfnote.Site, arguments int) *providers.Probe {
	if a.definitions == nil {
		return nil
	}
	probe, ok := a.definitions.Probe(site.Provider, site.Name, arguments)
	if !ok {
		return nil
	}
	return &probe
}

// decode returns a site's arguments, which are valid until the next call.
func (a *arguments) decode(site *elfnote.Site) []argspec.Arg {
	a.buffer = a.decoder.AppendDecode(a.buffer[:0], site.Location, site.Arguments)
	for i := range a.buffer {
		if arg := &a.buffer[i]; arg.Err != nil && errors.Is(arg.Err, elfnote.ErrSymbolNotFound) {
			a.missing = arg.Raw
		}
	}
	return a.buffer
}
