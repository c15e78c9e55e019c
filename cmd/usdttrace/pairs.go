// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
)

// pairs returns the patterns of the pairs that are measured.
func (o *options) pairs() (all []elfnote.PairPattern) {
	if o.latency != nil {
		all = append(all, o.latency.Pair)
	}
	return all
}

// checkPairs fails if the files have no pair that is to be measured.
func (t *targets) checkPairs() error {
	if len(t.options.pairs()) == 0 {
		return nil
	}
	var all elfnote.Listing
	var where []string
	for _, sel := range t.selections {
		listing, err := sel.File().Probes()
		if err != nil {
			return fmt.Errorf("%s: %w", sel.Name(), err)
		}
		all.Probes = append(all.Probes, listing.Probes...)
		where = append(where, sel.Name())
	}
	for _, p := range t.unmatchedEnds(&all) {
		for _, sel := range t.selections {
			t.addNearest(sel.File(), []elfnote.Pattern{p})
		}
	}
	return t.missingPairOf(&all, strings.Join(where, " or "))
}

// missingPair is the error if no pair that is to be measured is or was watched.
func (t *targets) missingPair(where string) error {
	listing := &elfnote.Listing{}
	t.mu.Lock()
	for probe := range t.probes {
		listing.Probes = append(listing.Probes, elfnote.Probe{Provider: probe[0], Name: probe[1], Sites: make([]elfnote.Site, 1)})
	}
	t.mu.Unlock()
	return t.missingPairOf(listing, where)
}

// unmatchedEnds returns the patterns of ends of pairs that match none of the
// probes.
func (t *targets) unmatchedEnds(listing *elfnote.Listing) (missing []elfnote.Pattern) {
	for _, p := range t.options.pairs() {
		for _, end := range p.Patterns() {
			if !slices.ContainsFunc(listing.Probes, func(probe elfnote.Probe) bool { return end.Match(probe.Provider, probe.Name) }) {
				missing = append(missing, end)
			}
		}
	}
	return missing
}

// missingPairOf returns an error for a pattern that selects none of the pairs
// among some probes.
func (t *targets) missingPairOf(listing *elfnote.Listing, where string) error {
	if missing := t.unmatchedEnds(listing); len(missing) > 0 {
		return &nothingError{t.nothing(missing, where)}
	}
	for _, p := range t.options.pairs() {
		found := false
		for _, pair := range listing.Pairs(p) {
			found = found || len(pair.Start.Sites) > 0 && len(pair.Done.Sites) > 0
		}
		if !found {
			return &nothingError{&trace.PairError{Pattern: p, Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}}
		}
	}
	return nil
}
