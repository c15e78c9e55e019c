// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestProbesAreGroupedInOrderOfFirstAppearance(t *testing.T) {
	im := newImage64()
	site := func(i int, provider, name string) Site {
		return Site{Location: codeAddress + uint64(i), Offset: codeOffset + uint64(i),
			Provider: provider, Name: name}
	}
	sites := []Site{
		site(0, "z", "last"), site(1, "a", "first"), site(2, "z", "last"),
		// Provider and name are told apart wherever the colon is.
		site(3, "a:b", "c"), site(4, "a", "b:c"), site(5, "a:b", "c"), site(6, "", ""),
	}
	var notes [][]byte
	for _, s := range sites {
		notes = append(notes, im.note(s))
	}
	im.AddNotes(notes...)
	listing, err := im.open(t).Probes()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(listing.Probes, []Probe{
		{Provider: "z", Name: "last", Sites: []Site{sites[0], sites[2]}},
		{Provider: "a", Name: "first", Sites: []Site{sites[1]}},
		{Provider: "a:b", Name: "c", Sites: []Site{sites[3], sites[5]}},
		{Provider: "a", Name: "b:c", Sites: []Site{sites[4]}},
		{Sites: []Site{sites[6]}},
	}))
}

func TestProbesMatchPatterns(t *testing.T) {
	im := newImage64()
	im.AddNotes(
		im.note(Site{Location: codeAddress, Provider: "p", Name: "one"}),
		im.note(Site{Location: codeAddress + 1, Provider: "p", Name: "two"}),
		im.note(Site{Provider: "p", Name: "broken"}),
	)
	f := im.open(t)
	pattern, err := ParsePattern("p:t*")
	qt.Assert(t, qt.IsNil(err))
	listing, err := f.Probes(pattern)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(listing.Probes, 1))
	qt.Assert(t, qt.Equals(listing.Probes[0].Name, "two"))
	// Broken notes are listed whatever is selected.
	qt.Assert(t, qt.HasLen(listing.Malformed, 1))
	qt.Assert(t, qt.Equals(listing.Malformed[0].(*elffile.NoteError).Name, "broken"))
}

func TestProbesListTheFirstMalformedNotesAndCountAll(t *testing.T) {
	im := newImage64()
	notes := [][]byte{im.note(at(1))}
	for range 3 * maxMalformed {
		notes = append(notes, im.note(Site{Provider: "p", Name: "broken"}))
	}
	im.AddNotes(notes...)
	listing, err := im.open(t).Probes()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(listing.Probes, 1))
	qt.Assert(t, qt.HasLen(listing.Malformed, maxMalformed))
	qt.Assert(t, qt.Equals(listing.Malformed[maxMalformed-1].(*elffile.NoteError).Index, maxMalformed))
	qt.Assert(t, qt.Equals(listing.MalformedCount, 3*maxMalformed))
}

func TestFileIsUsedByManyAtOnce(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(1)), im.note(at(2)))
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
	f := im.open(t)
	done := make(chan int)
	for range 8 {
		go func() {
			sites, _ := collect(f)
			f.Symbol("main")
			f.Symbol("nothing")
			f.BuildID()
			f.PLTGOT()
			done <- len(sites)
		}()
	}
	for range 8 {
		qt.Check(t, qt.Equals(<-done, 2))
	}
}
