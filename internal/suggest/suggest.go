// SPDX-License-Identifier: BSD-2-Clause

// Package suggest finds the probes, and pairs of probes, of a file that a
// pattern may have meant.
package suggest

import (
	"cmp"
	"iter"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
)

const (
	// mostNamed is how many probes are suggested.
	mostNamed = 3

	// mostCompared bounds the work for a hint: a file may carry a million
	// probes.
	mostCompared = 10_000

	// longest is how many bytes of a name are compared. Beyond that the
	// difference is large anyway, and the work quadratic.
	longest = 128
)

// NoMatch says that no probe matches any of the patterns in a place, if that is
// named, and which probes are spelled most alike, if there are some.
func NoMatch(patterns, where string, nearest []string) string {
	text := "no probe matches " + patterns
	if where != "" {
		text += " in " + where
	}
	if len(nearest) > 0 {
		text += " (nearest: " + strings.Join(nearest, ", ") + ")"
	}
	return text
}

// Probes returns up to three probes of some sites, as PROVIDER:NAME, whose
// names are spelled most like one of the patterns, best first. Upper and lower
// case, hyphens and underscores make no difference: people write query-start,
// as DTrace does, for query__start.
func Probes(sites iter.Seq2[elfnote.Site, error], patterns ...elfnote.Pattern) []string {
	wanted := make([]probe, 0, len(patterns))
	for _, p := range patterns {
		wanted = append(wanted, parse(p.String()))
	}
	var candidates candidates[string]
	seen := make(map[string]bool)
	for site, err := range sites {
		name := site.Provider + ":" + site.Name
		if err != nil || seen[name] {
			continue
		}
		if len(seen) == mostCompared {
			break
		}
		seen[name] = true
		provider, probe, best := plain(site.Provider), plain(site.Name), -1
		for i := range wanted {
			if d := wanted[i].distance(provider, probe); d >= 0 && (best < 0 || d < best) {
				best = d
			}
		}
		if best >= 0 {
			candidates = append(candidates, candidate[string]{name, best})
		}
	}
	return candidates.best()
}

// Word returns the word that is spelled most like another, "" if none is near.
func Word(wanted string, words []string) string {
	var candidates candidates[string]
	p := parse(wanted)
	for _, word := range words {
		if d, near := p.name.distance(plain(word)); near {
			candidates = append(candidates, candidate[string]{word, d})
		}
	}
	if best := candidates.best(); len(best) > 0 {
		return best[0]
	}
	return ""
}

// Pairs returns up to three of some pairs whose names are spelled most like a
// pattern, best first.
func Pairs(pairs []elfnote.Pair, pattern elfnote.PairPattern) []elfnote.Pair {
	text, _, _ := strings.Cut(pattern.String(), "|")
	var meant []elfnote.Pair       // those of which one of the probes is named, not the pair
	wanted := []probe{parse(text)} // PROVIDER:BASE, as the pair is called
	ends := pattern.Patterns()
	both := strings.Contains(text, "..")
	if both {
		wanted = []probe{parse(ends[0].String()), parse(ends[1].String())}
	}
	var candidates candidates[elfnote.Pair]
	for _, pair := range pairs[:min(mostCompared, len(pairs))] {
		provider, base, _ := strings.Cut(pair.String(), ":")
		names := []elfnote.Probe{{Provider: provider, Name: base}}
		if both {
			names = []elfnote.Probe{pair.Start, pair.Done}
		}
		is := func(end *elfnote.Probe) bool {
			return text == end.Name || text == end.Provider+":"+end.Name
		}
		if is(&pair.Start) || is(&pair.Done) {
			meant = append(meant, pair)
		}
		sum, near := 0, true
		for i := range wanted {
			d := wanted[i].distance(plain(names[i].Provider), plain(names[i].Name))
			sum, near = sum+d, near && d >= 0
		}
		if near {
			candidates = append(candidates, candidate[elfnote.Pair]{pair, sum})
		}
	}
	if len(meant) > 0 {
		return meant[:min(mostNamed, len(meant))]
	}
	return candidates.best()
}

// candidate is what may have been meant.
type candidate[T any] struct {
	value    T
	distance int
}

type candidates[T any] []candidate[T]

// best returns those that are nearest, the nearest first.
func (all candidates[T]) best() []T {
	slices.SortStableFunc(all,
		func(a, b candidate[T]) int { return cmp.Compare(a.distance, b.distance) })
	var values []T
	for _, c := range all[:min(mostNamed, len(all))] {
		values = append(values, c.value)
	}
	return values
}

// plain is what is compared of a name.
func plain(s string) string {
	return strings.ToLower(ignored.Replace(s[:min(len(s), longest)]))
}

var ignored = strings.NewReplacer("_", "", "-", "")

// probe is what is compared of a pattern.
type probe struct {
	provider, name glob
}

// distance returns how far a name is from the pattern, -1 if it is far.
func (p *probe) distance(provider, name string) int {
	inProvider, near := p.provider.distance(provider)
	inName, alsoNear := p.name.distance(name)
	if !near || !alsoNear {
		return -1
	}
	return inProvider + inName
}

// parse reads a pattern as elfnote does, but for the classes of bytes: each
// stands for any byte.
func parse(text string) probe {
	var sides [2]glob
	side := 0
	for i := 0; i < len(text); i++ {
		to := &sides[side]
		switch c := text[i]; {
		case c == '*':
			*to = append(*to, token{many: true})
		case c == '?':
			*to = append(*to, token{any: true})
		case c == '[':
			*to = append(*to, token{any: true})
			if end := strings.IndexByte(text[min(i+2, len(text)):], ']'); end >= 0 {
				i += 2 + end
			}
		case c == ':' && i+1 < len(text) && text[i+1] == ':': // as in a name of C++
			*to = append(*to, token{byte: c}, token{byte: c})
			i++
		case c == ':' && side == 0:
			side = 1
		case c == '\\' && i+1 < len(text):
			i++
			to.addPlain(text[i])
		default:
			to.addPlain(c)
		}
	}
	if side == 0 {
		return probe{provider: glob{{many: true}}, name: sides[0]}
	}
	return probe{provider: sides[0], name: sides[1]}
}

// glob is one side of a pattern.
type glob []token

// token stands for one byte, for any byte, or for any number of bytes.
type token struct {
	byte      byte
	any, many bool
}

func (g *glob) addPlain(c byte) {
	for _, b := range []byte(plain(string([]byte{c}))) {
		*g = append(*g, token{byte: b})
	}
}

// distance counts the bytes to insert, delete or change to make of s what the
// glob matches (Levenshtein). They are near if at most half of the glob is
// spelled otherwise: more of it is another name, not a slip.
func (g glob) distance(s string) (distance int, near bool) {
	g = g[:min(len(g), longest)]
	length := 0
	row := make([]int, len(s)+1)
	for j := range row {
		row[j] = j
	}
	for _, t := range g {
		diagonal := row[0]
		if !t.many {
			length++
			row[0]++
		}
		for j := range len(s) {
			above := row[j+1]
			switch {
			case t.many:
				row[j+1] = min(above, row[j])
			case t.any || t.byte == s[j]:
				row[j+1] = min(diagonal, above+1, row[j]+1)
			default:
				row[j+1] = min(diagonal, above, row[j]) + 1
			}
			diagonal = above
		}
	}
	return row[len(s)], row[len(s)] <= length/2
}
