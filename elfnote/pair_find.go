// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"fmt"
	"math/bits"
	"strings"
)

// pairFinder finds the pairs of a file.
type pairFinder struct {
	listing *Listing
	index   map[[2]string]int
	startOf map[int]int     // of a probe that ends something: what starts it
	isStart map[int]bool    // it has an end
	ends    []Probe         // of the pattern, where something fails
	failed  map[int][]Probe // by what ends something: what ends it where it fails
}

// probe completes a probe by its sites, and reports whether the file has it.
func (f *pairFinder) probe(p *Probe) bool {
	i := f.index[[2]string{p.Provider, p.Name}]
	if i > 0 {
		*p = f.listing.Probes[i-1]
	}
	return i > 0
}

// add adds a pair, unless one of the probes is in another pair already.
func (f *pairFinder) add(p *PairPattern, start, done int) {
	if _, taken := f.startOf[done]; !taken {
		f.startOf[done] = start
		f.isStart[start] = true
		pair := Pair{Start: f.listing.Probes[start], Done: f.listing.Probes[done]}
		f.failed[done] = p.failedOf(&pair, f.ends)
	}
}

// usual adds the pairs whose names end as usual.
func (f *pairFinder) usual(p *PairPattern) {
	for _, e := range endings {
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
	start, done := newEnd(p.start), newEnd(p.done)
	if start.provider.isAny() || done.provider.isAny() {
		start.sameProvider, done.sameProvider = true, true
	}
	others := false // a start does not end itself
	if start.name.wildcards() == 0 {
		done.anyName, others = true, done.name.wildcards() > 0
	}
	starts := make(map[string]int) // by what the wildcards match
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
	Pattern
	provider, name glob
	sameProvider   bool // the provider is that of the other side
	anyName        bool // all names that match end the same
}

func newEnd(p Pattern) end {
	provider, name := p.globs()
	return end{Pattern: p, provider: provider, name: name}
}

// key returns what is equal for the two probes of a pair, of which each matches
// its side.
func (e *end) key(probe *Probe) string {
	var parts []string
	if e.sameProvider {
		parts = append(parts, probe.Provider)
	} else {
		parts = e.provider.matched(probe.Provider)
	}
	if !e.anyName {
		parts = append(parts, e.name.matched(probe.Name)...)
	}
	return fmt.Sprintf("%q", parts)
}

// literal returns the one pair that the pattern selects if there are no
// wildcards.
func (p *PairPattern) literal() (Pair, bool) {
	var pair Pair
	var ok [4]bool
	startProvider, startName := p.start.globs()
	doneProvider, doneName := p.done.globs()
	pair.Start.Provider, ok[0] = startProvider.literal()
	pair.Start.Name, ok[1] = startName.literal()
	pair.Done.Provider, ok[2] = doneProvider.literal()
	pair.Done.Name, ok[3] = doneName.literal()
	return pair, ok == [4]bool{true, true, true, true}
}

// globs returns both sides of a pattern.
func (p *Pattern) globs() (provider, name glob) {
	if !p.exact {
		return p.provider, p.name
	}
	return literalGlob(p.exactProvider), literalGlob(p.exactName)
}

func literalGlob(s string) glob {
	g := make(glob, len(s))
	for i := range len(s) {
		g[i].add(s[i], s[i])
	}
	return g
}

// byte returns the one byte that an element stands for; ok is false for a
// wildcard.
func (e *element) byte() (b byte, ok bool) {
	count := 0
	for i, word := range e.set {
		if word != 0 {
			count += bits.OnesCount64(word)
			b = byte(64*i + bits.TrailingZeros64(word))
		}
	}
	return b, !e.any && count == 1
}

// isAny reports whether the glob is * alone.
func (g glob) isAny() bool { return len(g) == 1 && g[0].any }

// wildcards returns how many elements stand for more than one byte.
func (g glob) wildcards() (n int) {
	for i := range g {
		if _, literal := g[i].byte(); !literal {
			n++
		}
	}
	return n
}

// literal returns the one text that the glob matches; ok is false if there are
// others.
func (g glob) literal() (text string, ok bool) {
	b := make([]byte, len(g))
	for i := range g {
		if b[i], ok = g[i].byte(); !ok {
			return "", false
		}
	}
	return string(b), true
}

// matched returns what each wildcard matches of a text that the glob matches.
// Where there is a choice, what comes first matches as little as possible.
func (g glob) matched(s string) (parts []string) {
	// As match does it, which see.
	var lengths []int // of what each * matches
	at, retry, retryAt := 0, -1, 0
	for i := 0; i < len(g) || at < len(s); {
		switch {
		case i < len(g) && g[i].any:
			lengths = append(lengths, 0)
			i++
			retry, retryAt = i, at
			continue
		case i < len(g) && at < len(s) && g[i].has(s[at]):
			i++
			at++
			continue
		}
		retryAt++
		lengths[len(lengths)-1]++
		i, at = retry, retryAt
	}
	for i := range g {
		n := 1
		if g[i].any {
			n, lengths = lengths[0], lengths[1:]
		}
		if _, literal := g[i].byte(); !literal {
			parts = append(parts, s[:n])
		}
		s = s[n:]
	}
	return parts
}
