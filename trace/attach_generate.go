// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"debug/elf"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
	"github.com/gousdt/gousdt/usdt"
)

// maxArguments bounds the arguments for which code is generated. There can be
// more of them than in the selection, if probes, or sites with different
// cookies, share their arguments. A site counts as one argument more.
const maxArguments = 1 << 20

// work is what is to be attached.
type work struct {
	plan     *bpfgen.Plan
	sel      *usdt.Selection
	file     string
	maxSites int // of usdt.SelectOptions

	wanted []int   // indices of the sites in the selection
	sites  []*Site // for each of them
	which  []int   // for each of them: its block
	blocks bpfgen.Blocks
	block  []*bpfgen.Block // by number

	missing        error // why an argument is not available at a site that is not wanted
	pairs          *filePairs
	ends, delivers bool // there are ends of calls; something may be sent or aggregated
}

// newWork generates the code for all sites of a selection. The sites of a file
// have few different argument strings. In a selection, sites with equal strings
// share the parsed arguments, and for these the code is generated once.
func newWork(
	plan *bpfgen.Plan, sel *usdt.Selection, file string, opts *usdt.AttachOptions,
	definitions *providers.Definitions, pairs *filePairs,
) (*work, error) {
	type key struct {
		args           *argspec.Arg
		provider, name string
		cookie         uint64
	}
	w := &work{plan: plan, sel: sel, file: file, maxSites: opts.MaxSites, pairs: pairs}
	type kind struct {
		number         int // of the block, -1 for none
		events, starts *events
		definition     *providers.Probe
	}
	known := make(map[key]kind)
	args := 0                         // of all kinds
	probes := make(map[string]string) // one string for all sites of a probe
	for i, found := range sel.Sites() {
		site := &Site{Site: found, File: file, Cookie: opts.Cookie}
		if opts.SiteCookie != nil {
			site.Cookie = opts.SiteCookie(found)
		}
		k := key{provider: found.Provider, name: found.Name, cookie: site.Cookie}
		if len(found.Args) > 0 {
			k.args = &found.Args[0]
		}
		this, ok := known[k]
		if !ok {
			if args += 1 + len(found.Args); args > maxArguments {
				return nil, fmt.Errorf("more than %d arguments and sites of different probes: %w",
					maxArguments, elfnote.ErrTooLarge)
			}
			if probe, ok := definition(definitions, found.Provider, found.Name,
				len(found.Args)); ok {
				this.definition = &probe
			}
			site.definition = this.definition
			block, err := plan.Block(w.toGenerate(site))
			if err != nil {
				return nil, err
			}
			this.number = -1
			if (block == nil || block.Ends && !block.Delivers) && w.missing == nil {
				w.missing = plan.Missing(w.toGenerate(site))
			}
			if block != nil {
				// Sites with equal code may differ in what is not in the code,
				// such as constants.
				this.events = newEvents(block.Record, found.Args)
				this.starts = newEvents(block.Saved, found.Args)
				w.ends = w.ends || block.Ends
				w.delivers = w.delivers || block.Delivers
				if this.number = w.blocks.Add(block); this.number == len(w.block) {
					w.block = append(w.block, block)
				}
			}
			known[k] = this
		}
		if this.number < 0 {
			continue
		}
		probe := found.Provider + ":" + found.Name
		if probes[probe] == "" {
			probes[probe] = probe
		}
		site.probe = probes[probe]
		site.done = pairs.done[[2]string{found.Provider, found.Name}]
		site.events, site.starts, site.definition = this.events, this.starts, this.definition
		w.wanted = append(w.wanted, i)
		w.sites = append(w.sites, site)
		w.which = append(w.which, this.number)
	}
	return w, nil
}

func (w *work) toGenerate(s *Site) *bpfgen.Site {
	site := &bpfgen.Site{Provider: s.Provider, Name: s.Name, Cookie: s.Cookie, Args: s.Args,
		Pointer: 8, Pairs: w.pairs.ends[[2]string{s.Provider, s.Name}]}
	if w.sel.File().Header().Class == elf.ELFCLASS32 {
		site.Pointer = 4
	}
	if s.definition != nil {
		for _, a := range s.definition.Arguments {
			site.Names = append(site.Names, a.Name)
			site.Lengths = append(site.Lengths, a.Length)
		}
	}
	return site
}

// fixed returns the code for one site alone, which knows the site's number.
func (w *work) fixed(n int) (*bpfgen.Blocks, error) {
	site := w.toGenerate(w.sites[n])
	site.Fixed, site.ID = true, w.sites[n].id
	block, err := w.plan.Block(site)
	if err != nil {
		return nil, err
	}
	blocks := &bpfgen.Blocks{}
	blocks.Add(block)
	return blocks, nil
}

// selection returns some of the wanted sites, in this order.
func (w *work) selection(some []int) *usdt.Selection {
	if len(some) == w.sel.Len() && slices.IsSorted(some) {
		return w.sel
	}
	return w.sel.Subset(some)
}
