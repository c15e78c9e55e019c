// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// arguments decodes the argument strings of one file.
type arguments struct {
	decoder *argspec.Decoder
	buffer  []argspec.Arg

	// missing is the last argument whose symbol is nowhere, or "".
	missing string
}

func newArguments(file *elfnote.File) *arguments {
	return &arguments{decoder: argspec.NewDecoder(file)}
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
