// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// arguments decodes the argument strings of one file.
type arguments struct {
	file  *elfnote.File
	debug *elfnote.File // nil until a symbol is missing in file, or if there is none
	tried bool          // whether debug was looked for

	missing string // a symbol that was asked for and is nowhere

	target argspec.Target
	buffer []argspec.Arg
}

// newArguments prepares to decode the file's arguments. The debug file, if one
// is given, must belong to the file.
func newArguments(file *elfnote.File, debugPath string) (*arguments, error) {
	a := &arguments{file: file}
	a.target = argspec.Target{
		Machine:  file.Machine(),
		Class:    file.Class(),
		Absolute: file.Kind() == elfnote.Executable,
		Symbol:   a.symbol,
		PLTGOT:   file.PLTGOT,
	}
	if debugPath == "" {
		return a, nil
	}
	debug, err := file.OpenDebugFile(debugPath)
	if err != nil {
		return nil, fmt.Errorf("--debug-file: %w", err)
	}
	a.debug, a.tried = debug, true
	return a, nil
}

// decode returns a site's arguments, which are valid until the next call.
func (a *arguments) decode(site *elfnote.Site) []argspec.Arg {
	a.target.Location = site.Location
	a.buffer = argspec.AppendParse(a.buffer[:0], &a.target, site.Arguments)
	return a.buffer
}

// symbol looks a symbol up in the file, and in its debug file if the file was
// stripped of it.
func (a *arguments) symbol(name string) (uint64, error) {
	address, err := a.file.Symbol(name)
	if !errors.Is(err, elfnote.ErrSymbolNotFound) {
		return address, err
	}
	if !a.tried {
		a.tried = true
		// Most files have no debug file installed: the argument's own error
		// says which symbol is missing.
		a.debug, _ = a.file.OpenDebugFile("")
	}
	if a.debug != nil {
		return a.debug.Symbol(name)
	}
	a.missing = name
	return 0, err
}

func (a *arguments) close() {
	if a.debug != nil {
		a.debug.Close()
	}
}
