// SPDX-License-Identifier: BSD-2-Clause

package defs

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/testprog"
)

func listed(t *testing.T, notes []testprog.Note, patterns ...elfnote.Pattern) *Listing {
	t.Helper()
	file, err := elfnote.NewFile(bytes.NewReader(testprog.NotesFile(notes)))
	qt.Assert(t, qt.IsNil(err))
	listing, err := List(file, patterns...)
	qt.Assert(t, qt.IsNil(err))
	return listing
}

func TestSitesAreGroupedInOrderOfFirstAppearance(t *testing.T) {
	notes := []testprog.Note{
		{Provider: "z", Name: "last"}, {Provider: "a", Name: "first"}, {Provider: "z", Name: "last"},
		// Provider and name are told apart wherever the colon is.
		{Provider: "a:b", Name: "c"}, {Provider: "a", Name: "b:c"}, {Provider: "a:b", Name: "c"}, {},
	}
	for i := range notes {
		notes[i].Apart = true
	}
	listing := listed(t, notes)
	var got []string
	for _, p := range listing.Probes {
		got = append(got, fmt.Sprintf("%q %q %d", p.Provider, p.Name, len(p.Sites)))
		for i, site := range p.Sites {
			qt.Check(t, qt.Equals(site.Provider+" "+site.Name, p.Provider+" "+p.Name))
			qt.Check(t, qt.IsTrue(i == 0 || site.Location > p.Sites[i-1].Location))
		}
	}
	qt.Check(t, qt.DeepEquals(got,
		[]string{`"z" "last" 2`, `"a" "first" 1`, `"a:b" "c" 2`, `"a" "b:c" 1`, `"" "" 1`}))
}

// Malformed notes are listed whatever is selected: the first ones, and how many
// there are.
func TestListingOfPatterns(t *testing.T) {
	notes := []testprog.Note{{Provider: "p", Name: "one"}, {Provider: "p", Name: "two"}}
	for range 3 * maxMalformed {
		notes = append(notes, testprog.Note{Provider: "p", Name: "broken", Broken: true})
	}
	listing := listed(t, notes, elfnote.MustParsePattern("p:t*"))
	qt.Assert(t, qt.HasLen(listing.Probes, 1))
	qt.Check(t, qt.Equals(listing.Probes[0].Name, "two"))
	qt.Assert(t, qt.HasLen(listing.Malformed, maxMalformed))
	qt.Check(t, qt.Equals(listing.Malformed[maxMalformed-1].(*elffile.NoteError).Index, maxMalformed+1))
	qt.Check(t, qt.Equals(listing.MalformedCount, 3*maxMalformed))
}
