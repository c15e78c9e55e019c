// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"errors"
	"hash/maphash"
	"math/bits"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/pattern"
)

// A FileProbe is a probe of a file with all its sites.
type FileProbe struct {
	Provider, Name string
	Sites          []elfnote.Site // at least one, in the order of the file
}

// Listing has the probes of a file.
type Listing struct {
	// Probes are in the order of their first sites.
	Probes []FileProbe
	// Malformed has an error for each of the first 16 malformed notes, in the
	// order of the file. The patterns do not matter for them: the name of the
	// probe itself may be malformed.
	Malformed []error
	// MalformedCount is the number of all malformed notes.
	MalformedCount int
}

// maxMalformed bounds the malformed notes that a [Listing] describes. A small
// file can have millions of them.
const maxMalformed = 16

// firstTogether is the number of probes whose first sites share one piece of
// memory, of 6 KiB. Most probes have no other site.
const firstTogether = 1 << 6

// List groups the sites of a file by provider and name: those that match any of
// the patterns, or all if there is no pattern. The error says which note
// section could not be read, as that of [elfnote.File.Sites] does.
func List(file *elfnote.File, patterns ...elfnote.Pattern) (*Listing, error) {
	listing := &Listing{}
	// index has the probes by their names: one more than the place in the
	// listing at the hash, or after it where others have the hash, and 0 where
	// there is none. Half of it is free. A map takes seven times the memory,
	// and usdtlist 2 % more time for libjvm.
	index, seed := make([]int32, 1<<6), maphash.MakeSeed()
	find := func(provider, name string) *int32 {
		at := maphash.String(seed, provider) ^ bits.RotateLeft64(maphash.String(seed, name), 1)
		for ; ; at++ {
			found := &index[at&uint64(len(index)-1)]
			if *found == 0 {
				return found
			}
			if p := &listing.Probes[*found-1]; p.Name == name && p.Provider == provider {
				return found
			}
		}
	}
	last := -1               // index of the probe of the site before
	var first []elfnote.Site // the first sites of up to firstTogether probes
	for site, err := range file.Sites() {
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
		if !pattern.MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		// The sites of a probe most often come one after the other.
		if last < 0 || listing.Probes[last].Name != site.Name ||
			listing.Probes[last].Provider != site.Provider {
			found := find(site.Provider, site.Name)
			if last = int(*found) - 1; last < 0 {
				last = len(listing.Probes)
				*found = int32(last + 1)
				if len(first) == cap(first) {
					first = make([]elfnote.Site, 0, min(last+1, firstTogether))
				}
				first = append(first, site)
				n := len(first)
				if last == cap(listing.Probes) { // what is not touched costs nothing
					listing.Probes = slices.Grow(listing.Probes, 3*last+1)
				}
				listing.Probes = append(listing.Probes,
					FileProbe{site.Provider, site.Name, first[n-1 : n : n]})
				if 2*len(listing.Probes) > len(index) {
					index = make([]int32, 4*len(index))
					for i, p := range listing.Probes {
						*find(p.Provider, p.Name) = int32(i + 1)
					}
				}
				continue
			}
		}
		listing.Probes[last].Sites = append(listing.Probes[last].Sites, site)
	}
	return listing, nil
}
