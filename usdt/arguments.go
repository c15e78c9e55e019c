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
	count  int // of the arguments parsed

	debug *elfnote.File // the one asked for, or opened when the file itself lacks a symbol
	tried bool
}

// parseArguments parses the arguments of sites, of which the instruction to attach to is known.
func parseArguments(file *elfnote.File, debugPath string, sites *siteTable) (err error) {
	a := arguments{file: file}
	if debugPath != "" {
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
	a.target = argspec.Target{
		Machine:  file.Machine(),
		Class:    file.Class(),
		Absolute: file.Kind() == elfnote.Executable,
		Symbol:   a.symbol,
		PLTGOT:   file.PLTGOT,
	}
	for i := range sites.rows {
		row := &sites.rows[i]
		list := &sites.lists[row.list]
		if list.parsed && !list.relative {
			continue
		}
		if list.parsed {
			row.list = int32(len(sites.lists))
			sites.lists = append(sites.lists, argumentList{text: list.text})
			list = &sites.lists[row.list]
		}
		a.parse(list, row.instruction())
		if a.count > MaxArguments {
			return fmt.Errorf("%s: more than %d arguments of probes: %w", file.Name(), MaxArguments, elfnote.ErrTooLarge)
		}
	}
	return nil
}

// parse parses a list for a site at an address.
func (a *arguments) parse(list *argumentList, instruction uint64) {
	a.target.Location = instruction
	list.args = argspec.Parse(a.target, list.text)
	list.parsed = true
	list.relative = slices.ContainsFunc(list.args, argspec.Arg.Relative)
	a.count += len(list.args)
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
