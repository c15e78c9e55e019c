// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import "errors"

// Probe is a probe with all its sites.
type Probe struct {
	Provider, Name string
	Sites          []Site // at least one, in the order of the file
}

// Listing is what a file's note sections hold.
type Listing struct {
	// Probes are in the order of their first sites.
	Probes []Probe
	// Malformed are the first [MaxMalformed] of the notes that cannot be used,
	// in the order of the file; [File.Sites] tells of all. They are listed
	// whatever is asked for: the probe's name may be what is broken.
	Malformed []*NoteError
	// MalformedCount is how many notes cannot be used altogether.
	MalformedCount int
}

// MaxMalformed is how many broken notes a [Listing] describes. A small file can
// have millions of them, which a program that lists files of strangers and
// keeps that should not pay for.
const MaxMalformed = 16

// Probes returns the probes that match any of the patterns, or all probes if
// there is no pattern. Their sites are grouped by provider and name. A file
// without probes has an empty Listing. An error means that a note section could
// not be read, see [File.Sites].
func (f *File) Probes(patterns ...Pattern) (*Listing, error) {
	type key struct{ provider, name string }
	listing := new(Listing)
	index := make(map[key]int) // of the probe in the listing
	var last *Probe
	for site, err := range f.Sites() {
		if err != nil {
			var broken *NoteError
			if !errors.As(err, &broken) {
				return nil, err
			}
			if listing.MalformedCount++; listing.MalformedCount <= MaxMalformed {
				listing.Malformed = append(listing.Malformed, broken)
			}
			continue
		}
		if !MatchAny(patterns, site.Provider, site.Name) {
			continue
		}
		// The sites of a probe most often come one after the other.
		if last == nil || last.Name != site.Name || last.Provider != site.Provider {
			k := key{site.Provider, site.Name}
			i, known := index[k]
			if !known {
				i = len(listing.Probes)
				index[k] = i
				listing.Probes = append(listing.Probes, Probe{Provider: site.Provider, Name: site.Name})
			}
			last = &listing.Probes[i]
		}
		last.Sites = append(last.Sites, site)
	}
	return listing, nil
}
