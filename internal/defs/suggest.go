// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
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

// Or returns patterns as a text: "a:b or c:d".
func Or(patterns []elfnote.Pattern) string {
	var texts []string
	for _, p := range patterns {
		texts = append(texts, p.String())
	}
	return strings.Join(texts, " or ")
}

// NoMatch says that no probe matches any of the patterns in a place, if that is
// named, and which probes are spelled most alike, if there are some.
func NoMatch(patterns, where string, nearest []string) string {
	text := "no probe matches " + patterns
	if where != "" {
		text += " in " + where
	}
	return text + Nearest(nearest)
}

// Never returns ": REASON" if the definitions say why there is no probe that
// the first of some patterns seems to mean, by "fires PATTERN never: REASON".
func (d *Definitions) Never(patterns []elfnote.Pattern) string {
	if d == nil || len(patterns) == 0 {
		return ""
	}
	provider, name, _ := strings.Cut(patterns[0].String(), ":")
	_, only := d.Fires(provider, name)
	reason, never := strings.CutPrefix(only, "never: ")
	if !never {
		return ""
	}
	return ": " + reason
}

// Missing returns ": REASON" if the definitions say which builds have probes of
// the first of some patterns, by "fires PATTERN missing: REASON".
func (d *Definitions) Missing(patterns []elfnote.Pattern) string {
	if len(patterns) == 0 {
		return ""
	}
	provider, name, _ := strings.Cut(patterns[0].String(), ":")
	for _, from := range d.all() {
		if p := from.own(missingBuild, provider, name); p != nil {
			return ": " + p.text
		}
	}
	return ""
}

// Nearest returns " (nearest: a, b)", "" if there is none.
func Nearest(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (nearest: " + strings.Join(names, ", ") + ")"
}

// A file is untrusted: maxShared is at how many locations SharedLocations names
// probes, and maxSharing how many sites it counts at one.
const (
	maxShared  = 4096
	maxSharing = 16
)

// SharedLocations returns the probes, as PROVIDER:NAME, at those locations
// where several sites of a file are, by the location. A probe that has several
// is named once, with their number. At locations after the first maxShared it
// names none, but says that there are several probes. Linkers put them there by
// making one of equal functions.
func SharedLocations(sites iter.Seq2[elfnote.Site, error]) map[uint64][]string {
	var locations []uint64
	for site, err := range sites {
		if err == nil {
			locations = append(locations, site.Location)
		}
	}
	slices.Sort(locations)
	shared, last := make(map[uint64][]string), uint64(0) // the last location where probes are named
	for i := 1; i < len(locations); i++ {
		switch {
		case locations[i] != locations[i-1]:
		case len(shared) < maxShared || locations[i] == last:
			shared[locations[i]], last = nil, locations[i]
		default:
			shared[locations[i]] = severalProbes
		}
	}
	if len(shared) == 0 {
		return nil
	}
	for site, err := range sites {
		if err != nil {
			continue
		}
		if names, ok := shared[site.Location]; ok && site.Location <= last && len(names) < maxSharing {
			shared[site.Location] = append(names,
				elffile.ShortName(site.Provider)+":"+elffile.ShortName(site.Name))
		}
	}
	for location, names := range shared {
		shared[location] = counted(names)
	}
	return shared
}

var severalProbes = []string{"several probes"}

// counted returns each of some names once, with how often it is there.
func counted(names []string) (once []string) {
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			continue
		}
		n := 0
		for _, other := range names[i:] {
			if other == name {
				n++
			}
		}
		if n > 1 {
			name = fmt.Sprintf("%s (%d sites)", name, n)
		}
		once = append(once, name)
	}
	return once
}

// NearestProbes returns up to three probes of some sites, as PROVIDER:NAME, and
// calls and pairs of those that are defined, whose names are spelled most like
// one of the patterns: best first, and calls before probes. Upper and lower
// case, hyphens and underscores make no difference: people write query-start,
// as DTrace does, for query__start. If only providers are wanted, as in
// postgres:*, it returns those, as postgresql:*. Nil Definitions have no calls.
func (d *Definitions) NearestProbes(
	sites iter.Seq2[elfnote.Site, error], patterns ...elfnote.Pattern,
) []string {
	wanted := make([]probe, 0, len(patterns))
	onlyProviders := true
	for _, p := range patterns {
		wanted = append(wanted, parse(p.String()))
		onlyProviders = onlyProviders && strings.HasSuffix(p.String(), ":*")
	}
	var probes, pairs candidates[string]
	var listing Listing // of the providers that are near
	defined := make(map[string]bool)
	if d != nil && !onlyProviders {
		for p := range d.Probes() {
			defined[p.Provider+":"+p.Name] = true
		}
	}
	seen := make(map[string]bool)
	for site, err := range sites {
		name := site.Provider + ":" + site.Name
		if onlyProviders {
			name = site.Provider + ":*"
		}
		if err != nil || seen[name] {
			continue
		}
		if len(seen) == mostCompared {
			break
		}
		seen[name] = true
		provider, probe := plain(site.Provider), plain(site.Name)
		best, isNear := far, false
		for i := range wanted {
			best = min(best, wanted[i].distance(provider, probe))
			isNear = isNear || wanted[i].provider.distance(provider) < far
		}
		probes.add(name, best)
		if isNear && defined[name] {
			listing.Probes = append(listing.Probes, FileProbe{Provider: site.Provider, Name: site.Name})
		}
	}
	for _, pair := range d.Pairs(&listing, MustParsePairPattern("*")) {
		provider, base, _ := strings.Cut(pair.String(), ":")
		best := far
		for i := range wanted {
			best = min(best, wanted[i].distance(plain(provider), plain(base)))
		}
		pairs.add(pair.String(), best)
	}
	return append(pairs, probes...).best()
}

// NearestAmong returns " (nearest: a, b)" for the probes among some, and pairs
// of these, that are spelled most like one of the patterns, "" if none is.
func (d *Definitions) NearestAmong(probes []elfnote.Site, patterns []elfnote.Pattern) string {
	return Nearest(d.AddNearest(nil, probes, patterns))
}

// AddNearest adds such names to those of other files, up to three altogether.
func (d *Definitions) AddNearest(
	known []string, probes []elfnote.Site, patterns []elfnote.Pattern,
) []string {
	for _, name := range d.NearestProbes(func(yield func(elfnote.Site, error) bool) {
		for i := range probes {
			if !yield(probes[i], nil) {
				return
			}
		}
	}, patterns...) {
		if len(known) < mostNamed && !slices.Contains(known, name) {
			known = append(known, name)
		}
	}
	return known
}

// NearestWord returns the word that is spelled most like another, "" if none is
// near.
func NearestWord(wanted string, words []string) string {
	var candidates candidates[string]
	p := parse(wanted)
	for _, word := range words {
		candidates.add(word, p.name.distance(plain(word)))
	}
	return append(candidates.best(), "")[0]
}

// nearestPairs returns up to three of some pairs whose names are spelled most
// like a pattern, best first.
func nearestPairs(pairs []Pair, pattern PairPattern) []Pair {
	text, _, _ := strings.Cut(pattern.String(), "|")
	var meant []Pair               // the pattern names one of their probes, not the pair
	wanted := []probe{parse(text)} // PROVIDER:BASE, as the pair is called
	ends := pattern.Patterns()
	both := strings.Contains(text, "..")
	if both {
		wanted = []probe{parse(ends[0].String()), parse(ends[1].String())}
	}
	var candidates candidates[Pair]
	for _, pair := range pairs[:min(mostCompared, len(pairs))] {
		provider, base, _ := strings.Cut(pair.String(), ":")
		names := []FileProbe{{Provider: provider, Name: base}}
		if both {
			names = []FileProbe{pair.Start, pair.Done}
		}
		is := func(end *FileProbe) bool {
			return text == end.Name || text == end.Provider+":"+end.Name
		}
		if is(&pair.Start) || is(&pair.Done) {
			meant = append(meant, pair)
		}
		sum := 0
		for i := range wanted {
			sum += wanted[i].distance(plain(names[i].Provider), plain(names[i].Name))
		}
		candidates.add(pair, sum)
	}
	if len(meant) > 0 {
		return meant[:min(mostNamed, len(meant))]
	}
	return candidates.best()
}

// A PairError says that a file has no pair of probes that a pattern selects.
type PairError struct {
	Pattern PairPattern
	Pairs   []Pair // of the file: calls, and then those whose names end as usual
}

// NewPairError returns the error for a file with these probes. A pattern that
// names a probe of calls means these.
func (d *Definitions) NewPairError(pattern PairPattern, listing *Listing) *PairError {
	all := d.Pairs(listing, MustParsePairPattern("*"))
	provider, name, _ := strings.Cut(pattern.String(), ":")
	var meant []Pair
	for _, call := range d.callsOf(provider) {
		if !slices.ContainsFunc(call.Pairs,
			func(ends [2]string) bool { return slices.Contains(ends[:], name) }) {
			continue
		}
		for _, pair := range all {
			if pair.String() == provider+":"+call.Name {
				meant = append(meant, pair)
			}
		}
	}
	if len(meant) > 0 {
		all = meant
	}
	return &PairError{Pattern: pattern, Pairs: all}
}

// maxNamedPairs is the greatest number of pairs that an error names.
const maxNamedPairs = 20

func (e *PairError) Error() string {
	text := fmt.Sprintf("there is no pair of probes %s", e.Pattern)
	if len(e.Pairs) == 0 {
		return text + " (the names of no two probes end as those of a pair do)"
	}
	pairs, intro, more := nearestPairs(e.Pairs, e.Pattern), "nearest", ""
	if len(pairs) == 0 {
		pairs, intro = e.Pairs, "there are"
		if len(pairs) > maxNamedPairs {
			pairs, more = pairs[:maxNamedPairs], ", ..."
		}
	}
	names := make([]string, len(pairs))
	for i, p := range pairs {
		names[i] = p.String()
	}
	return fmt.Sprintf("%s (%s: %s%s)", text, intro, strings.Join(names, ", "), more)
}

// candidates are what may have been meant, and how far each is.
type candidates[T any] []candidate[T]

type candidate[T any] struct {
	value    T
	distance int
}

func (all *candidates[T]) add(value T, distance int) {
	if distance < far {
		*all = append(*all, candidate[T]{value, distance})
	}
}

// best returns those that are nearest, the nearest first.
func (all candidates[T]) best() (values []T) {
	slices.SortStableFunc(all, func(a, b candidate[T]) int { return a.distance - b.distance })
	for _, c := range all[:min(mostNamed, len(all))] {
		values = append(values, c.value)
	}
	return values
}

// plain returns the part of a name that is compared.
func plain(s string) string {
	return strings.ToLower(ignored.Replace(s[:min(len(s), longest)]))
}

// ignored also hides colons, so that one in a pattern ends the provider.
var ignored = strings.NewReplacer("_", "", "-", "", ":", "\x00")

// probe has the parts of a pattern that are compared.
type probe struct{ provider, name glob }

// far is the distance of a name that cannot be meant.
const far = 1 << 20

func (p *probe) distance(provider, name string) int {
	return p.provider.distance(provider) + p.name.distance(name)
}

// parse reads a pattern as elfnote does, but for the classes of bytes: each
// stands for any byte. So do * and ? that are quoted. The colons of a name of
// C++ end no provider.
func parse(text string) probe {
	var b strings.Builder
	for text != "" {
		size, class := 1, 0
		if text[0] == '[' {
			class = strings.IndexByte(text[min(2, len(text)):], ']') + 1
		}
		switch {
		case class > 0:
			b.WriteByte('?')
			size = 2 + class
		case text[0] == '\\' && len(text) > 1:
			_, size = utf8.DecodeRuneInString(text[1:])
			size++
			b.WriteString(plain(text[1:size]))
		case strings.HasPrefix(text, "::"):
			size = 2
			b.WriteString(plain(text[:size]))
		default:
			b.WriteByte(text[0])
		}
		text = text[size:]
	}
	text = b.String()
	provider, name, named := strings.Cut(text, ":")
	if !named {
		provider, name = "*", text
	}
	return probe{glob(plain(provider)), glob(plain(name))}
}

// glob is one side of a pattern: * is any number of bytes, ? any byte.
type glob string

// distance counts the bytes to insert, delete or change to make of s what the
// glob matches (Levenshtein). They are near if at most half of the glob is
// spelled otherwise: more of it is another name, not a slip.
func (g glob) distance(s string) int {
	length := 0
	row := make([]int, len(s)+1)
	for j := range row {
		row[j] = j
	}
	for _, c := range []byte(g) {
		diagonal := row[0]
		if c != '*' {
			length++
			row[0]++
		}
		for j := range len(s) {
			above := row[j+1]
			switch {
			case c == '*':
				row[j+1] = min(above, row[j])
			case c == '?' || c == s[j]:
				row[j+1] = min(diagonal, above+1, row[j]+1)
			default:
				row[j+1] = min(diagonal, above, row[j]) + 1
			}
			diagonal = above
		}
	}
	if row[len(s)] > length/2 {
		return far
	}
	return row[len(s)]
}
