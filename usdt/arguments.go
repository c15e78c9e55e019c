// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// maxArguments is how many arguments the sites of a Selection may have, those
// with equal ones counted once. A file is untrusted data, and each argument
// of a few bytes in it takes some 170 in memory: these take 90 MB, or
// 240 MB where each names another symbol. Of real files libjvm has the most,
// 750 sites with 2,000 arguments. What has more is refused with an error that
// wraps elfnote.ErrTooLarge.
const maxArguments = 1 << 19

// decodeArguments decodes the arguments of sites, of which the instruction to
// attach to is known. Most sites of a file share few strings: what does not
// depend on the site is decoded once.
//
// maxSites is SelectOptions.MaxSites.
func decodeArguments(file *elfnote.File, sites *siteTable, maxSites int) error {
	decoder := argspec.NewDecoder(file)
	count := 0
	for i := range sites.rows {
		row := &sites.rows[i]
		list := &sites.lists[row.list]
		if list.decoded && !list.relative {
			continue
		}
		if list.decoded {
			row.list = int32(len(sites.lists))
			sites.lists = append(sites.lists, argumentList{text: list.text})
			list = &sites.lists[row.list]
		}
		list.args = decoder.Decode(row.instruction(), list.text)
		list.relative = slices.ContainsFunc(list.args, argspec.Arg.Relative)
		list.decoded = true
		count += len(list.args)
		if limit := argumentsPerSite * maxSites; limit > 0 && count > limit {
			return tooMany(file.Name(), "different arguments", limit, count)
		}
		if count > maxArguments {
			return fmt.Errorf("%s: more than %d arguments of probes: %w", file.Name(), maxArguments,
				elfnote.ErrTooLarge)
		}
	}
	return nil
}
