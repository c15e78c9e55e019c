// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/pattern"
	"github.com/gousdt/gousdt/internal/tracing"
)

// Pair is two probes of a file, of which one starts a call and the other ends
// it.
type Pair struct {
	// Start and Done are the probes. If a [PairPattern] has the names of both,
	// one of them may be missing in the file: then it has no Sites.
	Start, Done FileProbe

	// Failed are further probes that end a call: one that fails.
	Failed []FileProbe
}

// String returns the pattern of this pair for [ParsePairPattern], without
// Failed: PROVIDER:BASE if the names have a usual ending, as in
// postgresql:query, and START..DONE otherwise.
func (p Pair) String() string {
	if p.Start.Provider == p.Done.Provider {
		for _, e := range allEndings() {
			if base, ok := e.base(p.Start.Name, p.Done.Name); ok && base != "" {
				return escapeDots(elfnote.Exact(p.Start.Provider, base).String())
			}
		}
	}
	return escapeDots(elfnote.Exact(p.Start.Provider, p.Start.Name).String()) + pairSeparator +
		escapeDots(elfnote.Exact(p.Done.Provider, p.Done.Name).String())
}

// pairSeparator stands between the two patterns of a PairPattern, and
// failedSeparator before each pattern of probes that end a call that fails.
const (
	pairSeparator   = ".."
	failedSeparator = "|"
)

// escapeDots puts a backslash before dots and bars that could be taken for a
// separator.
func escapeDots(pattern string) string {
	dots := strings.Contains("."+pattern+".", pairSeparator)
	if !dots && !strings.Contains(pattern, failedSeparator) {
		return pattern
	}
	var b strings.Builder
	for i := 0; i < len(pattern); i++ {
		switch {
		case pattern[i] == '.' && dots, pattern[i] == failedSeparator[0]:
			b.WriteByte('\\')
		case pattern[i] == '\\' && i+1 < len(pattern):
			b.WriteByte('\\')
			i++
		}
		b.WriteByte(pattern[i])
	}
	return b.String()
}

// ending is a usual ending of the names of a pair.
type ending struct{ start, done string }

// endings are in the order in which they are tried: a start is paired with the
// first of its possible ends that the file has.
var endings = []ending{
	{"start", "done"}, {"begin", "end"}, {"entry", "return"}, {"enter", "exit"},
	{"start", "end"}, {"start", "stop"}, {"start", "complete"}, {"start", "finish"},
	{"start", "return"},
	{"begin", "done"}, {"begin", "complete"}, {"begin", "finish"},
	{"entry", "exit"}, {"enter", "return"}, {"enter", "leave"}, {"startup", "shutdown"},
	{"begin", "commit"},
}

func allEndings() []ending {
	all := slices.Clip(endings)
	for _, e := range tracing.AnyOrder {
		all = append(all, ending{e[0], e[1]})
	}
	return all
}

// base returns the names of a pair without the ending and the separator before
// it. ok is false if the names do not have this ending.
func (e ending) base(start, done string) (base string, ok bool) {
	base, ok = strings.CutSuffix(start, e.start)
	if !ok || base+e.done != done {
		return "", false
	}
	for _, separator := range []string{"__", "_", "-"} {
		if b, ok := strings.CutSuffix(base, separator); ok {
			return b, true
		}
	}
	return "", base == ""
}

// PairPattern selects pairs of probes. The zero value selects none.
type PairPattern struct {
	source      string
	start, done pattern.Pattern
	base        pattern.Pattern // in place of start and done, if usual is set
	usual       bool            // the pattern is a BASE
	failed      []pattern.Pattern
}

// ParsePairPattern reads a pattern in the form of trace.Latency.Pair:
// START..DONE or BASE, each perhaps with |FAILED.
func ParsePairPattern(s string) (PairPattern, error) {
	pair, failed, fails := cutUnescaped(s, failedSeparator)
	p, err := parsePair(pair)
	if err != nil || !fails {
		return p, err
	}
	starts := p.start
	if p.usual {
		starts = p.base
	}
	if wildcards(&starts.Provider) > 0 && !isAny(&starts.Provider) || wildcards(&starts.Name) > 0 {
		return PairPattern{}, fmt.Errorf("%w %q: a probe that ends what fails belongs to one start: name it without wildcards",
			pattern.ErrBad, s)
	}
	p.source = s
	for more := true; more; {
		var one string
		one, failed, more = cutUnescaped(failed, failedSeparator)
		of, err := pattern.Parse(one)
		if err != nil {
			return PairPattern{}, err
		}
		p.failed = append(p.failed, of)
	}
	return p, nil
}

// cutUnescaped is [strings.Cut] at a separator without a backslash before it.
func cutUnescaped(s, separator string) (before, after string, found bool) {
	for i := 0; i+len(separator) <= len(s); i++ {
		switch {
		case s[i] == '\\':
			i++
		case strings.HasPrefix(s[i:], separator):
			return s[:i], s[i+len(separator):], true
		}
	}
	return s, "", false
}

func parsePair(s string) (p PairPattern, err error) {
	first, second, both := cutUnescaped(s, pairSeparator)
	start, err := pattern.Parse(first)
	if err != nil {
		return p, err
	}
	if !both {
		if _, err := pattern.Parse(s + "*"); err != nil { // see Patterns
			return p, err
		}
		return PairPattern{source: s, base: start, usual: true}, nil
	}
	done, err := pattern.Parse(second)
	if err != nil {
		return p, err
	}
	unlike := func(what string, n, m int) (PairPattern, error) {
		return PairPattern{}, fmt.Errorf(
			"%w %q: the %s have %d and %d wildcards: which start belongs to which end is not known",
			pattern.ErrBad, s, what, n, m)
	}
	n, m := wildcards(&start.Name), wildcards(&done.Name)
	providers, others := wildcards(&start.Provider), wildcards(&done.Provider)
	switch {
	case n > 0 && n != m:
		return unlike("names", n, m)
	case isAny(&start.Provider) || isAny(&done.Provider):
	case providers != others:
		return unlike("providers", providers, others)
	}
	return PairPattern{source: s, start: start, done: done}, nil
}

// MustParsePairPattern is [ParsePairPattern] for patterns that are part of a
// program's text. It panics if the pattern is malformed.
func MustParsePairPattern(s string) PairPattern {
	p, err := ParsePairPattern(s)
	if err != nil {
		panic(err)
	}
	return p
}

// String returns the pattern as ParsePairPattern reads it.
func (p PairPattern) String() string { return p.source }

// Patterns returns patterns that match all probes of the pairs, and perhaps
// other probes.
func (p PairPattern) Patterns() (all []elfnote.Pattern) {
	var sources []string
	switch {
	case p.source == "":
	case p.usual:
		sources = []string{p.base.Source + "*"}
	default:
		sources = []string{p.start.Source, p.done.Source}
	}
	for _, f := range p.failed {
		sources = append(sources, f.Source)
	}
	for _, source := range sources {
		all = append(all, elfnote.MustParsePattern(source)) // it was parsed before
	}
	return all
}

// failedOf returns the probes that end a failed call of a pair.
func (p *PairPattern) failedOf(pair *Pair, probes []FileProbe) (failed []FileProbe) {
	for _, f := range p.failed {
		for _, probe := range probes {
			if !f.Match(probe.Provider, probe.Name) ||
				isAny(&f.Provider) && probe.Provider != pair.Start.Provider {
				continue
			}
			other := func(p *FileProbe) bool {
				return p.Name != probe.Name || p.Provider != probe.Provider
			}
			if other(&pair.Start) && other(&pair.Done) {
				failed = append(failed, probe)
			}
		}
	}
	return failed
}

// pairsIn returns the pairs among the probes that match any of the patterns, in
// the order of the probes that start them. A probe may be the Start of several
// pairs, with different ends, but the Done of only one.
func pairsIn(l *Listing, patterns ...PairPattern) []Pair {
	index := make(map[[2]string]int, len(l.Probes)) // 1 + the index of a probe
	for i := range l.Probes {
		index[[2]string{l.Probes[i].Provider, l.Probes[i].Name}] = i + 1
	}
	f := pairFinder{listing: l, index: index, startOf: make(map[int]int),
		isStart: make(map[int]bool), failed: make(map[int][]FileProbe)}
	var pairs []Pair
	for i := range patterns {
		p := &patterns[i]
		f.ends = nil
		for i := range l.Probes {
			if probe := &l.Probes[i]; slices.ContainsFunc(p.failed, func(f pattern.Pattern) bool {
				return f.Match(probe.Provider, probe.Name)
			}) {
				f.ends = append(f.ends, *probe)
			}
		}
		if p.usual {
			f.usual(p)
			continue
		}
		if pair, literal := p.literal(); literal {
			// The other end may be in another file.
			if s, d := f.probe(&pair.Start), f.probe(&pair.Done); (s || d) && !(s && d) {
				pair.Failed = p.failedOf(&pair, f.ends)
				pairs = append(pairs, pair)
				continue
			}
		}
		f.named(p)
	}
	ends := slices.SortedFunc(maps.Keys(f.startOf), func(a, b int) int {
		return cmp.Or(f.startOf[a]-f.startOf[b], a-b)
	})
	for _, done := range ends {
		pairs = append(pairs, Pair{l.Probes[f.startOf[done]], l.Probes[done], f.failed[done]})
	}
	return pairs
}

// pairFinder finds the pairs of a file.
type pairFinder struct {
	listing *Listing
	index   map[[2]string]int
	startOf map[int]int         // index of the start, by that of the end
	isStart map[int]bool        // whether a probe is a start, by its index
	ends    []FileProbe         // that match the pattern's FAILED
	failed  map[int][]FileProbe // Pair.Failed, by the index of the end
}

// probe adds the sites to a probe, and reports whether the file has it.
func (f *pairFinder) probe(p *FileProbe) bool {
	i := f.index[[2]string{p.Provider, p.Name}]
	if i > 0 {
		*p = f.listing.Probes[i-1]
	}
	return i > 0
}

// add adds a pair, unless done ends another pair already.
func (f *pairFinder) add(p *PairPattern, start, done int) {
	if _, taken := f.startOf[done]; !taken {
		f.startOf[done] = start
		f.isStart[start] = true
		pair := Pair{Start: f.listing.Probes[start], Done: f.listing.Probes[done]}
		f.failed[done] = p.failedOf(&pair, f.ends)
	}
}

// usual adds the pairs whose names have a usual ending.
func (f *pairFinder) usual(p *PairPattern) {
	for _, e := range allEndings() {
		for start := range f.listing.Probes {
			probe := &f.listing.Probes[start]
			rest, ok := strings.CutSuffix(probe.Name, e.start)
			if !ok || f.isStart[start] {
				continue
			}
			done := f.index[[2]string{probe.Provider, rest + e.done}] - 1
			if done < 0 {
				continue
			}
			if base, ok := e.base(probe.Name, rest+e.done); ok &&
				p.base.Match(probe.Provider, base) {
				f.add(p, start, done)
			}
		}
	}
}

// named adds the pairs of START..DONE.
func (f *pairFinder) named(p *PairPattern) {
	start, done := end{Pattern: p.start}, end{Pattern: p.done}
	if isAny(&start.Provider) || isAny(&done.Provider) {
		start.sameProvider, done.sameProvider = true, true
	}
	others := false // a start does not end itself
	if wildcards(&start.Name) == 0 {
		done.anyName, others = true, wildcards(&done.Name) > 0
	}
	starts := make(map[string]int) // index of the start, by end.key
	for i := range f.listing.Probes {
		if probe := &f.listing.Probes[i]; start.Match(probe.Provider, probe.Name) {
			key := start.key(probe)
			if _, taken := starts[key]; !taken {
				starts[key] = i
			}
		}
	}
	for i := range f.listing.Probes {
		if probe := &f.listing.Probes[i]; done.Match(probe.Provider, probe.Name) {
			if start, ok := starts[done.key(probe)]; ok && !(others && start == i) {
				f.add(p, start, i)
			}
		}
	}
}

// end is one side of START..DONE.
type end struct {
	pattern.Pattern
	sameProvider bool // both sides must have the same provider
	anyName      bool // the wildcards of names need not match the same
}

// key returns a text that is the same for the two probes of a pair. The probe
// matches this side.
func (e *end) key(probe *FileProbe) string {
	var parts []string
	if e.sameProvider {
		parts = append(parts, probe.Provider)
	} else {
		parts = matched(&e.Provider, probe.Provider)
	}
	if !e.anyName {
		parts = append(parts, matched(&e.Name, probe.Name)...)
	}
	return fmt.Sprintf("%q", parts)
}

// literal returns the one pair that the pattern selects if there are no
// wildcards.
func (p *PairPattern) literal() (Pair, bool) {
	for _, g := range []*pattern.Glob{&p.start.Provider, &p.start.Name, &p.done.Provider, &p.done.Name} {
		if g.Elements != nil {
			return Pair{}, false
		}
	}
	return Pair{Start: FileProbe{Provider: p.start.Provider.Text, Name: p.start.Name.Text},
		Done: FileProbe{Provider: p.done.Provider.Text, Name: p.done.Name.Text}}, true
}

func isAny(g *pattern.Glob) bool { return len(g.Elements) == 1 && g.Elements[0].Any }

// wildcards returns how many elements match more than one byte.
func wildcards(g *pattern.Glob) (n int) {
	for i := range g.Elements {
		if _, literal := g.Elements[i].Byte(); !literal {
			n++
		}
	}
	return n
}

// matched returns the part of a text that each wildcard matches. The glob must
// match the text. If there is a choice, earlier wildcards match as little as
// possible.
func matched(g *pattern.Glob, s string) (parts []string) {
	if g.Elements == nil {
		return nil
	}
	var lengths []int
	g.Search(s, &lengths)
	for i := range g.Elements {
		n := 1
		if g.Elements[i].Any {
			n, lengths = lengths[0], lengths[1:]
		}
		if _, literal := g.Elements[i].Byte(); !literal {
			parts = append(parts, s[:n])
		}
		s = s[n:]
	}
	return parts
}
