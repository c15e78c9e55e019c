// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
	"github.com/google/go-cmp/cmp"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// cmpErrors compares errors by what they say.
var cmpErrors = cmp.Comparer(func(a, b error) bool { return a.Error() == b.Error() })

// at returns a site of the usual image.
func at(i int) Site { return Site{Location: codeAddress + uint64(i), Provider: "p", Name: "n"} }

// locations returns the places of the sites in the code.
func locations(sites []Site) []int {
	var l []int
	for _, s := range sites {
		l = append(l, int(s.Location-codeAddress))
	}
	return l
}

func TestNoteWalkSkipsAndCountsNotesOfOthers(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		d := im.descriptor(at(50))
		im.AddNotes(
			im.RawNote("GNU\x00", 3, d, 4),
			im.RawNote(probeOwner, 2, d, 4),
			im.RawNote("stapsdt", 3, d, 4),         // without NUL
			im.RawNote("stapsdt\x00\x00", 3, d, 4), // with two
			im.RawNote("stapsdT\x00", 3, d, 4),
			im.RawNote("", 3, nil, 4),
			im.RawNote("a long owner's name\x00", 3, d[:5], 4),
			im.note(at(1)),
			im.note(Site{}),
		)
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.DeepEquals(locations(sites), []int{1}))
		qt.Assert(t, qt.HasLen(errs, 2))
		qt.Assert(t, qt.ErrorIs(errs[0], errNoteType))
		qt.Assert(t, qt.Equals(errs[1].(*elffile.NoteError).Index, 8))
	})
}

func TestNoteWalkAlignsAsTheSectionSays(t *testing.T) {
	for _, test := range []struct {
		align uint64 // of the section
		want  int    // of the notes
	}{{0, 4}, {1, 4}, {2, 4}, {4, 4}, {8, 8}, {16, 4}, {1 << 63, 4}} {
		everyClass(t, func(t *testing.T, im *image) {
			// An odd owner and descriptor make the difference visible.
			im.AddNotes(
				im.RawNote("A\x00", 1, []byte{1}, test.want),
				im.RawNote(probeOwner, probeType, im.descriptor(at(1)), test.want),
				im.RawNote(probeOwner, probeType, im.descriptor(at(2)), test.want),
			)
			im.Sections[1].Align = test.align & (1<<32 - 1)
			if im.Wide() {
				im.Sections[1].Align = test.align
			}
			sites, errs := collect(im.open(t))
			qt.Assert(t, qt.HasLen(errs, 0))
			qt.Assert(t, qt.DeepEquals(locations(sites), []int{1, 2}))
		})
	}
}

func TestNoteWalkLastNoteNeedsNoPadding(t *testing.T) {
	im := newImage64()
	d := im.descriptor(at(1))
	note := im.RawNote(probeOwner, probeType, d, 4)
	im.AddNotes(note[:elffile.NoteHeaderSize+len(probeOwner)+len(d)])
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.HasLen(errs, 0))
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{1}))

	// Nor does an owner after which there is no descriptor.
	im = newImage64()
	im.AddNotes(im.note(at(1)), im.RawNote("A\x00", 1, nil, 1))
	sites, errs = collect(im.open(t))
	qt.Assert(t, qt.HasLen(errs, 0))
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{1}))
}

func TestNoteWalkSizePastTheEndEndsItsSectionOnly(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		large := func(word int, value uint32) []byte {
			b := im.note(at(2))
			im.Order.PutUint32(b[4*word:], value)
			return b
		}
		for _, broken := range [][]byte{
			large(0, 1<<32-1), large(1, 1<<32-1), large(0, 500), large(1, 500),
			large(0, 1<<31), large(1, 1<<31), // negative, if they were
			{0, 0, 0, 0, 1}, // not even a header
		} {
			im.Sections = im.Sections[:1]
			im.AddNotes(im.note(at(1)), broken)
			if len(broken) > 5 {
				// What comes after it is lost, without more errors.
				im.Sections[1].Data = append(im.Sections[1].Data, im.note(at(3))...)
			}
			im.AddNotes(im.note(at(4)))
			sites, errs := collect(im.open(t))
			qt.Assert(t, qt.DeepEquals(locations(sites), []int{1, 4}))
			qt.Assert(t, qt.HasLen(errs, 1))
			qt.Assert(t, qt.ErrorIs(errs[0], errNoteSize))
			qt.Assert(t, qt.Equals(errs[0].(*elffile.NoteError).Index, 1))
			qt.Assert(t,
				qt.ErrorMatches(errs[0], "note 1: note reaches past the end of its section"))
		}
	})
}

func TestNoteWalkDoesNotReadPastTheEnd(t *testing.T) {
	im := newImage64()
	broken := im.RawNote(probeOwner, probeType, nil, 4)
	im.Order.PutUint32(broken, 1<<20)
	im.AddNotes(im.note(at(1)), broken)
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{1}))
	qt.Assert(t, qt.HasLen(errs, 1))
	qt.Assert(t, qt.ErrorIs(errs[0], errNoteSize))
}

func TestNoteWalkTrailingZeroesAreNoNote(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(1)), make([]byte, 11))
	im.AddNotes(im.note(at(2)))
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.HasLen(errs, 0))
	qt.Assert(t, qt.DeepEquals(locations(sites), []int{1, 2}))
}

func TestSitesOfAllSections(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.Type = elf.ET_REL
		for i := range 5 {
			im.AddNotes(im.note(at(2*i)), im.note(at(2*i+1)))
			im.AddNotes()
		}
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.DeepEquals(locations(sites), []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}))
	})
}

func TestSitesBesideSectionsThatCannotBeRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(s *elfimage.Section)
		want   error
		text   string
	}{
		{"compressed", func(s *elfimage.Section) { s.Flags = elf.SHF_COMPRESSED },
			elffile.ErrCompressed,
			"section .note.stapsdt at offset 0x[0-9a-f]+: section is compressed .*"},
		{"4 GB", func(s *elfimage.Section) { s.Size = elfimage.Ptr[uint64](4 << 30) }, elffile.ErrTooLarge,
			".*: 4294967296 bytes of notes: .*"},
		{"as large as can be, but not there",
			func(s *elfimage.Section) { s.Size = elfimage.Ptr[uint64](maxNoteBytes - 1000) },
			elffile.ErrTruncated, ".*"},
		{"a little larger than the file",
			func(s *elfimage.Section) { s.Size = elfimage.Ptr[uint64](5000) }, elffile.ErrTruncated,
			".*"},
		{"all of the address space",
			func(s *elfimage.Section) { s.Size = elfimage.Ptr[uint64](1<<64 - 1) }, elffile.ErrTooLarge,
			".*"},
		{"past the end", func(s *elfimage.Section) { s.Offset = elfimage.Ptr[uint64](1 << 40) },
			elffile.ErrTruncated, ".*"},
		{"past all files", func(s *elfimage.Section) { s.Offset = elfimage.Ptr[uint64](1<<64 - 8) },
			elffile.ErrTruncated, ".*"},
		{"wrapping around", func(s *elfimage.Section) {
			s.Offset, s.Size = elfimage.Ptr[uint64](1<<64-8), elfimage.Ptr[uint64](elffile.ChunkSize+8)
		}, elffile.ErrTruncated, ".*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			im.AddNotes(im.note(at(1)))
			im.AddNotes(im.note(at(2)))
			im.AddNotes(im.note(at(3)))
			test.change(&im.Sections[2])
			f := im.open(t)
			sites, errs := collect(f)
			qt.Assert(t, qt.DeepEquals(locations(sites), []int{1, 3}))
			qt.Assert(t, qt.HasLen(errs, 1))
			qt.Assert(t, qt.ErrorIs(errs[0], test.want))
			qt.Assert(t, qt.ErrorMatches(errs[0], test.text))
		})
	}
}

func TestNoteWalkBoundsOverlappingSections(t *testing.T) {
	// Many sections that share a large range would otherwise multiply it.
	const size = maxNoteBytes / 4
	im := newImage64()
	im.AddNotes(make([]byte, size))
	for range 20 {
		im.Sections = append(im.Sections, elfimage.Section{Name: ".note.stapsdt",
			Kind: elf.SHT_NOTE, Offset: elfimage.Ptr[uint64](dataOffset + dataSize),
			Size: elfimage.Ptr[uint64](size)})
	}
	f := im.open(t)
	sites, errs := collect(f)
	qt.Assert(t, qt.HasLen(sites, 0))
	walk := f.walkProbes()
	for ok := true; ok; {
		ok, _ = walk.step()
	}
	qt.Assert(t, qt.Equals(walk.total, maxNoteBytes))
	walk.close()
	last := errs[len(errs)-1]
	qt.Assert(t, qt.ErrorIs(last, elffile.ErrTooLarge))
	qt.Assert(t,
		qt.Equals(bytes.Count([]byte(last.Error()), []byte("larger than")), maxSectionErrors))
}

func TestSitesOfAMillionNotes(t *testing.T) {
	const count = 1 << 20
	im := newImage64()
	im.Segments[0].Data = make([]byte, count)
	im.Segments = im.Segments[:1]
	var notes bytes.Buffer
	for i := range count {
		notes.Write(im.note(Site{Location: codeAddress + uint64(i)}))
	}
	im.AddNotes(notes.Bytes())
	f := im.open(t)
	found := 0
	for site, err := range f.Sites() {
		if err != nil || site.Location != codeAddress+uint64(found) {
			t.Fatalf("site %d: %+v, %v", found, site, err)
		}
		found++
	}
	qt.Assert(t, qt.Equals(found, count))
}

func TestANoteOfAnotherTypeIsReported(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.RawNote(probeOwner, probeType+1, im.descriptor(at(1)), 4), im.note(at(2)),
		im.RawNote("other", probeType+1, nil, 4))
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.HasLen(sites, 1))
	qt.Assert(t, qt.HasLen(errs, 1))
	qt.Check(t, qt.ErrorIs(errs[0], errNoteType))
	qt.Check(t, qt.ErrorMatches(errs[0], "note 0: note of a probe has a type .*: 0x4"))
}
