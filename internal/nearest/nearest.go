// SPDX-License-Identifier: BSD-2-Clause

// Package nearest finds the probes of a file that a pattern may have meant.
package nearest

import (
	"cmp"
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

// Probes returns up to three probes of a file, as PROVIDER:NAME, whose names
// are spelled most like one of the patterns, best first. Upper and lower case,
// hyphens and underscores make no difference: people write query-start, as
// DTrace does, for query__start.
func Probes(file *elfnote.File, patterns ...elfnote.Pattern) []string {
	wanted := make([]probe, 0, len(patterns))
	for _, p := range patterns {
		wanted = append(wanted, parse(p))
	}
	type candidate struct {
		name     string
		distance int
	}
	var candidates []candidate
	seen := make(map[string]bool)
	for site, err := range file.Sites() {
		name := site.Provider + ":" + site.Name
		if err != nil || seen[name] {
			continue
		}
		if len(seen) == mostCompared {
			break
		}
		seen[name] = true
		if d := closest(wanted, plain(site.Provider), plain(site.Name)); d >= 0 {
			candidates = append(candidates, candidate{name, d})
		}
	}
	slices.SortStableFunc(candidates, func(a, b candidate) int { return cmp.Compare(a.distance, b.distance) })

	var names []string
	for _, c := range candidates[:min(mostNamed, len(candidates))] {
		names = append(names, c.name)
	}
	return names
}

// closest returns the distance of a name to the nearest of the patterns, -1 if
// it is far from all.
func closest(wanted []probe, provider, name string) int {
	best := -1
	for i := range wanted {
		inProvider, near := wanted[i].provider.distance(provider)
		if !near {
			continue
		}
		inName, near := wanted[i].name.distance(name)
		if d := inProvider + inName; near && (best < 0 || d < best) {
			best = d
		}
	}
	return best
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

// parse reads a pattern as elfnote does, but for the classes of bytes: each
// stands for any byte.
func parse(p elfnote.Pattern) probe {
	var sides [2]glob
	side, text := 0, p.String()
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
