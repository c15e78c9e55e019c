// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// pairs returns the patterns of the pairs that are measured.
func (o *options) pairs() (all []elfnote.PairPattern) {
	for i := range o.spans {
		all = append(all, o.spans[i].Pair)
	}
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
		listing.Probes = append(listing.Probes, elfnote.Probe{Provider: probe[0], Name: probe[1],
			Sites: make([]elfnote.Site, 1)})
	}
	t.mu.Unlock()
	return t.missingPairOf(listing, where)
}

// unmatchedEnds returns the patterns of ends of pairs that match none of the
// probes.
func (t *targets) unmatchedEnds(listing *elfnote.Listing) (missing []elfnote.Pattern) {
	for _, p := range t.options.pairs() {
		for _, end := range p.Patterns() {
			if !slices.ContainsFunc(listing.Probes,
				func(probe elfnote.Probe) bool { return end.Match(probe.Provider, probe.Name) }) {
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
			return &nothingError{&trace.PairError{Pattern: p,
				Pairs: listing.Pairs(elfnote.MustParsePairPattern("*"))}}
		}
	}
	return nil
}

// parsePairs reads the patterns of --slow and --pairs, which are of pairs, and
// what is the same at both ends.
func (o *options) parsePairs(words []string, match string) error {
	if len(words) == 0 && o.listPairs {
		words = []string{"*"}
	}
	for _, word := range words {
		pair, err := parsePair(word)
		if err != nil {
			return err
		}
		o.patterns = append(o.patterns, pair.Patterns()...)
		o.listed = append(o.listed, pair)
		if o.slow != nil {
			span := trace.Latency{Pair: pair}
			span.By, span.DoneBy, _ = strings.Cut(match, "=")
			o.spans = append(o.spans, span)
		}
	}
	return nil
}

// filter returns the condition that the kernel evaluates.
func (o *options) filter() string {
	if o.slow == nil || *o.slow == 0 {
		return o.where
	}
	slow := fmt.Sprintf("duration >= %dns", o.slow.Nanoseconds())
	switch {
	case o.where == "":
		return slow
	case strings.Contains(o.where, "||"):
		return "(" + o.where + ") && " + slow
	default:
		return o.where + " && " + slow
	}
}

// withPairs says which pairs a file has that has none of the wanted ones. The
// error is as it was if there are none.
func withPairs(target usdt.Target, wanted elfnote.PairPattern, err error) error {
	sel, failed := usdt.Select(target, nil)
	if failed != nil {
		return err
	}
	defer sel.Close()
	listing, failed := sel.File().Probes()
	if failed != nil {
		return err
	}
	pairs := listing.Pairs(elfnote.MustParsePairPattern("*"))
	if len(pairs) == 0 {
		return err
	}
	return fmt.Errorf("%s: %w", sel.Name(), &trace.PairError{Pattern: wanted, Pairs: pairs})
}

// parsePair reads the pattern of a pair.
func parsePair(s string) (elfnote.PairPattern, error) {
	pair, err := elfnote.ParsePairPattern(s)
	if err != nil {
		err = fmt.Errorf("%w (usdttrace --pairs lists the pairs of a file)", err)
	}
	return pair, err
}
