// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// MaxArguments is how many arguments the sites of a Selection may have, those with equal ones counted once. A file is data
// from a stranger, and each argument of a few bytes in it takes some 150 in memory: these take 80 MB. Of real files libjvm
// has the most, 750 sites with 2,000 arguments. What has more is refused with an error that wraps elfnote.ErrTooLarge.
const MaxArguments = 1 << 19

// arguments parses the argument strings of one file. Most sites of a file share few strings, so what does not depend
// on the site is parsed once.
type arguments struct {
	file   *elfnote.File
	target argspec.Target
	parsed map[string]int32 // number in lists
	lists  [][]argspec.Arg
	count  int // of the arguments in lists

	debug *elfnote.File // the one asked for, or opened when the file itself lacks a symbol
	tried bool
}

// parseArguments fills in the arguments of sites, of which the instruction to attach to is known. It returns for each
// site the number of its list of arguments among the different ones.
func parseArguments(file *elfnote.File, debugPath string, sites []Site) (which []int32, err error) {
	a := arguments{file: file, parsed: make(map[string]int32)}
	if debugPath != "" {
		if a.debug, err = file.OpenDebugFile(debugPath); err != nil {
			return nil, fmt.Errorf("%s: debug file: %w", file.Name(), err)
		}
		a.tried = true
	}
	defer func() {
		if a.debug != nil {
			a.debug.Close()
		}
	}()
	a.target = argspec.Target{
		Machine:  file.Machine(),
		Class:    file.Class(),
		Absolute: file.Kind() == elfnote.Executable,
		Symbol:   a.symbol,
		PLTGOT:   file.PLTGOT,
	}
	which = make([]int32, len(sites))
	for i := range sites {
		which[i] = a.parse(&sites[i])
		if a.count > MaxArguments {
			return nil, fmt.Errorf("%s: more than %d arguments of probes: %w", file.Name(), MaxArguments, elfnote.ErrTooLarge)
		}
		sites[i].Args = a.lists[which[i]]
	}
	return which, nil
}

// parse returns the number of the site's list of arguments.
func (a *arguments) parse(site *Site) int32 {
	if list, ok := a.parsed[site.Arguments]; ok {
		return list
	}
	a.target.Location = site.Instruction
	args := argspec.Parse(a.target, site.Arguments)
	list := int32(len(a.lists))
	a.lists = append(a.lists, args)
	a.count += len(args)
	if !slices.ContainsFunc(args, argspec.Arg.Relative) {
		a.parsed[site.Arguments] = list
	}
	return list
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
