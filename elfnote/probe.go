// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Probe is a probe with all its sites.
type Probe struct {
	Provider, Name string
	Sites          []Site // at least one, in the order of the file
}

// Listing has the probes of a file.
type Listing struct {
	// Probes are in the order of their first sites.
	Probes []Probe
	// Malformed has an error for each of the first 16 malformed notes, in the
	// order of the file. The patterns do not matter for them: the name of the
	// probe itself may be malformed.
	Malformed []error
	// MalformedCount is the number of all malformed notes.
	MalformedCount int
}

// maxMalformed bounds the malformed notes that a [Listing] describes. A small
// file can have millions of them. [File.Sites] yields all.
const maxMalformed = 16

const (
	// usualNote is the usual size of a note in bytes: those of PostgreSQL and
	// libjvm have a hundred.
	usualNote = 96

	// maxUsual bounds the probes for which memory is allocated before one is
	// found, to some 100 KiB.
	maxUsual = 1 << 10

	// firstTogether is the number of probes whose first sites share one piece
	// of memory, of 6 KiB. Most probes have no other site.
	firstTogether = 1 << 6
)

// Probes returns the probes that match any of the patterns, or all probes if
// there is no pattern. It groups sites by provider and name. A file without
// probes has an empty Listing. The error says which note section could not be
// read, as that of [File.Sites] does.
func (f *File) Probes(patterns ...Pattern) (*Listing, error) {
	type key struct{ provider, name string }
	usual := 0 // the number of probes, if each has one note of usual size
	if len(patterns) == 0 {
		usual = min(f.noteSize()/usualNote, maxUsual)
	}
	listing := &Listing{Probes: make([]Probe, 0, usual)}
	index := make(map[key]int, usual) // of the probe in the listing
	last := -1                        // index of the probe of the site before
	var first []Site                  // the first sites of up to firstTogether probes
	for site, err := range f.Sites() {
		if err != nil {
			var malformed *elffile.NoteError
			if !errors.As(err, &malformed) {
				return nil, err
			}
			if listing.MalformedCount++; listing.MalformedCount <= maxMalformed {
				listing.Malformed = append(listing.Malformed, malformed)
			}
			continue
		}
		if !MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		// The sites of a probe most often come one after the other.
		if last < 0 || listing.Probes[last].Name != site.Name ||
			listing.Probes[last].Provider != site.Provider {
			k := key{site.Provider, site.Name}
			i, known := index[k]
			if !known {
				i = len(listing.Probes)
				index[k] = i
				if len(first) == cap(first) {
					first = make([]Site, 0, min(max(1, usual), firstTogether))
				}
				first = append(first, site)
				listing.Probes = append(listing.Probes,
					Probe{site.Provider, site.Name, slices.Clip(first[len(first)-1:])})
			}
			if last = i; !known {
				continue
			}
		}
		listing.Probes[last].Sites = append(listing.Probes[last].Sites, site)
	}
	return listing, nil
}

// argumentWords returns the words in the arguments of all probes that may be
// names of symbols: each one once, maxArgumentWords at most. It does not know
// the machine's syntax, so that registers without a sigil are among them.
func (f *File) argumentWords() []string {
	var words []string
	known := make(map[string]bool)
	last := ""
	for site := range f.Sites() {
		if site.Arguments == last {
			continue // many sites in a row often have the same arguments
		}
		last = site.Arguments
		for word := range symbolWords(last) {
			if len(word) < leastWord || known[word] {
				continue
			}
			if len(words) == maxArgumentWords {
				return words
			}
			word = strings.Clone(word) // the site's strings share memory with others'
			known[word] = true
			words = append(words, word)
		}
	}
	return words
}

// leastWord is the length in bytes of the shortest word that is looked up with
// others: most shorter ones are registers. A symbol with a shorter name, or one
// that is in quotes since it has other bytes, is found when it is asked for.
const leastWord = 3

// symbolWords yields the words of a text that may be names of symbols. A word
// that begins with a percent sign or a digit is a register or a number.
func symbolWords(text string) iter.Seq[string] {
	return func(yield func(word string) bool) {
		for word := range strings.FieldsFuncSeq(text, func(c rune) bool {
			return c < 0x80 && !isWordPart(byte(c)) && c != '$' && c != '%'
		}) {
			word = strings.TrimLeft(word, "$")
			if word != "" && word[0] != '%' && (word[0] < '0' || word[0] > '9') && !yield(word) {
				return
			}
		}
	}
}

// isWordPart reports whether GNU as accepts a byte in the names of symbols. It
// also accepts a dollar sign, which at the start of a word is a sigil.
func isWordPart(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' ||
		c == '.' || c >= 0x80
}
