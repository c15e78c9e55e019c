// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"errors"
	"hash/maphash"
	"math/bits"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
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
	// index has the place of a probe in the listing by a hash of its names.
	// With the names it would take two and a half times as much memory, and
	// usdtlist 0.06 ms more for libjvm.
	index, seed := make(map[uint64]int32), maphash.MakeSeed()
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
		if !elfnote.MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		// The sites of a probe most often come one after the other.
		if last < 0 || listing.Probes[last].Name != site.Name ||
			listing.Probes[last].Provider != site.Provider {
			key := maphash.String(seed, site.Provider) ^
				bits.RotateLeft64(maphash.String(seed, site.Name), 1)
			at, known := index[key]
			for ; known; at, known = index[key] {
				if p := &listing.Probes[at]; p.Name == site.Name && p.Provider == site.Provider {
					break
				}
				key++ // another probe has the hash
			}
			i := int(at)
			if !known {
				i = len(listing.Probes)
				index[key] = int32(i)
				if len(first) == cap(first) {
					first = make([]elfnote.Site, 0, min(len(listing.Probes)+1, firstTogether))
				}
				first = append(first, site)
				n := len(first)
				listing.Probes = append(listing.Probes,
					FileProbe{site.Provider, site.Name, first[n-1 : n : n]})
			}
			if last = i; !known {
				continue
			}
		}
		listing.Probes[last].Sites = append(listing.Probes[last].Sites, site)
	}
	return listing, nil
}
