// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestSitesOfIdenticalNotesAreOne(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		a := Site{Location: codeAddress + 1, Base: 5, Semaphore: dataAddress, Provider: "p",
			Name: "n", Arguments: "a"}
		variants := []Site{a}
		for _, change := range []func(s *Site){
			func(s *Site) { s.Location++ },
			func(s *Site) { s.Base++ },
			func(s *Site) { s.Semaphore += 2 },
			func(s *Site) { s.Provider = "q" },
			func(s *Site) { s.Name = "m" },
			func(s *Site) { s.Arguments = "b" },
			func(s *Site) { s.Arguments = "ab" },
			func(s *Site) { s.Arguments = "" },
			func(s *Site) { s.Provider, s.Name = "", "pn" },
		} {
			s := a
			change(&s)
			variants = append(variants, s)
		}
		var notes [][]byte
		for range 3 {
			for _, s := range variants {
				notes = append(notes, im.note(s))
			}
		}
		// What follows the last string in a descriptor has no meaning.
		notes = append(notes,
			im.RawNote(probeOwner, probeType, append(im.descriptor(a), "junk"...), 4))
		im.AddNotes(notes...)
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, len(variants)))
		for i, s := range sites {
			s.Offset, s.SemaphoreOffset = 0, 0
			qt.Assert(t, qt.Equals(s, variants[i]))
		}
	})
}

func TestSitesOfObjectFilesAreAllListed(t *testing.T) {
	// Before linking all locations are 0.
	im := newImage64()
	im.Type = elf.ET_REL
	im.AddNotes(im.note(Site{Name: "n"}), im.note(Site{Name: "n"}))
	sites, _ := collect(im.open(t))
	qt.Assert(t, qt.HasLen(sites, 2))
}

func TestSitesReportAllMalformedNotes(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(2)), im.note(Site{Name: "n"}), im.note(at(1)), im.note(Site{Name: "n"}),
		im.note(at(1)), im.note(at(2)))
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{2, 1}))
	qt.Assert(t, qt.HasLen(errs, 2))
}

// TestDuplicatesAreFoundInAnyOrder compares with a set of the notes' bytes.
func TestDuplicatesAreFoundInAnyOrder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, test := range []struct {
		name     string
		notes    int
		location func(i int) int
	}{
		{"ascending", 2000, func(i int) int { return i / 10 }},
		{"descending", 2000, func(i int) int { return codeSize - 1 - i%codeSize }},
		{"random", 5000, func(i int) int { return random.IntN(codeSize) }},
		{"one location", 5000, func(i int) int { return 7 }},
		{"ascending at first", 5000, func(i int) int {
			if i < codeSize {
				return i
			}
			return random.IntN(codeSize)
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				var notes bytes.Buffer
				want := []Site{}
				seen := map[Site]bool{}
				for i := range test.notes {
					s := at(test.location(i))
					s.Arguments = fmt.Sprint(random.IntN(20))
					notes.Write(im.note(s))
					if !seen[s] {
						seen[s] = true
						want = append(want, s)
					}
				}
				im.AddNotes(notes.Bytes())
				sites, errs := collect(im.open(t))
				qt.Assert(t, qt.HasLen(errs, 0))
				for i := range sites {
					sites[i].Offset = 0
				}
				qt.Assert(t, qt.DeepEquals(sites, want))
			})
		})
	}
}

func TestDuplicatesTakeTimeInProportion(t *testing.T) {
	// With one comparison for each pair of notes this would take hours.
	const count = 500_000
	im := newImage64()
	var notes bytes.Buffer
	for i := range count {
		notes.Write(im.note(Site{Location: codeAddress, Name: fmt.Sprint(i)}))
	}
	im.AddNotes(notes.Bytes())
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.HasLen(errs, 0))
	qt.Assert(t, qt.HasLen(sites, count))
}
