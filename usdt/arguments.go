// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/symbols"
)

// MaxArguments is how many arguments the sites of a Selection may have, those
// with equal ones counted once. A file is data from a stranger, and each
// argument of a few bytes in it takes some 150 in memory: these take 80 MB, or
// 240 MB where each names another symbol. Of real files libjvm has the most,
// 750 sites with 2,000 arguments. What has more is refused with an error that
// wraps elfnote.ErrTooLarge.
const MaxArguments = 1 << 19

// arguments parses the argument strings of one file. Most sites of a file share
// few strings, so what does not depend on the site is parsed once.
type arguments struct {
	target argspec.Target
	count  int // of the arguments parsed
}

// parseArguments parses the arguments of sites, of which the instruction to
// attach to is known.
func parseArguments(file *elfnote.File, debugPath string, sites *siteTable) error {
	resolver, err := symbols.New(file, debugPath)
	if err != nil {
		return fmt.Errorf("%s: debug file: %w", file.Name(), err)
	}
	defer resolver.Close()
	resolver.Find(sites.texts)
	a := arguments{target: resolver.Target()}
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
