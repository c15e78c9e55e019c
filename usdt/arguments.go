// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// arguments parses the argument strings of one file. Most sites of a file share few strings, so what does not depend
// on the site is parsed once.
type arguments struct {
	file   *elfnote.File
	parsed map[string][]argspec.Arg

	debug *elfnote.File // the one asked for, or opened when the file itself lacks a symbol
	tried bool
}

// parseArguments fills in the arguments of sites, of which the instruction to attach to is known.
func parseArguments(file *elfnote.File, debugPath string, sites []Site) error {
	a := arguments{file: file, parsed: make(map[string][]argspec.Arg)}
	if debugPath != "" {
		var err error
		if a.debug, err = file.OpenDebugFile(debugPath); err != nil {
			return fmt.Errorf("%s: debug file: %w", file.Name(), err)
		}
		a.tried = true
	}
	defer func() {
		if a.debug != nil {
			a.debug.Close()
		}
	}()
	for i := range sites {
		sites[i].Args = a.parse(&sites[i])
	}
	return nil
}

func (a *arguments) parse(site *Site) []argspec.Arg {
	if args, ok := a.parsed[site.Arguments]; ok {
		return args
	}
	args := argspec.Parse(argspec.Target{
		Machine:  a.file.Machine(),
		Class:    a.file.Class(),
		Location: site.Instruction,
		Absolute: a.file.Kind() == elfnote.Executable,
		Symbol:   a.symbol,
		PLTGOT:   a.file.PLTGOT,
	}, site.Arguments)
	if !slices.ContainsFunc(args, argspec.Arg.Relative) {
		a.parsed[site.Arguments] = args
	}
	return args
}

// symbol looks in the file, and then in its separate debug file.
func (a *arguments) symbol(name string) (uint64, error) {
	address, err := a.file.Symbol(name)
	if err == nil || errors.Is(err, elfnote.ErrSymbolAmbiguous) {
		return address, err
	}
	if !a.tried {
		a.tried = true
		// A debug file that is missing or unfit is no reason to fail: the argument says which symbol was missing.
		a.debug, _ = a.file.OpenDebugFile("")
	}
	if a.debug == nil {
		return 0, err
	}
	return a.debug.Symbol(name)
}
