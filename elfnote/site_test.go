// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestSiteIsReadInEveryClassAndByteOrder(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.AddNotes(
			im.note(Site{Location: codeAddress + 1, Base: 0x777, Semaphore: dataAddress + 2,
				Provider: "app", Name: "start", Arguments: "-4@%eax 8@$1"}),
			im.note(Site{Location: codeAddress + 2, Provider: "app", Name: "stop"}),
			im.note(Site{Location: codeAddress + codeSize - 1,
				Semaphore: dataAddress + dataSize - 2, Provider: "a::b\x1b\"\xff", Name: "c:d",
				Arguments: " "}),
			im.note(Site{Location: codeAddress + 4}),
		)
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.DeepEquals(sites, []Site{
			{Location: codeAddress + 1, Offset: codeOffset + 1, Base: 0x777,
				Semaphore: dataAddress + 2, SemaphoreOffset: dataOffset + 2, Provider: "app",
				Name: "start", Arguments: "-4@%eax 8@$1"},
			{Location: codeAddress + 2, Offset: codeOffset + 2, Provider: "app", Name: "stop"},
			{Location: codeAddress + codeSize - 1, Offset: codeOffset + codeSize - 1,
				Semaphore: dataAddress + dataSize - 2, SemaphoreOffset: dataOffset + dataSize - 2,
				Provider: "a::b\x1b\"\xff", Name: "c:d", Arguments: " "},
			{Location: codeAddress + 4, Offset: codeOffset + 4},
		}))
	})
}

func TestSitesAreMovedByPrelink(t *testing.T) {
	const moved = 0x100000
	for _, test := range []struct {
		name     string
		base     bool   // there is .stapsdt.base
		noteBase uint64 // the base in the note
		distance uint64 // of the addresses in the note from the true ones
	}{
		{"base section where the note says", true, baseAddress, 0},
		{"base section moved up", true, baseAddress - moved, moved},
		{"base section moved down", true, baseAddress + moved, 1<<64 - moved},
		{"no base section", false, baseAddress - moved, 0},
		{"no base in the note", true, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				if test.base {
					im.AddBase()
				}
				im.AddNotes(
					im.note(Site{Location: codeAddress - test.distance, Base: test.noteBase,
						Semaphore: dataAddress - test.distance, Name: "with"}),
					im.note(Site{Location: codeAddress + 1 - test.distance, Base: test.noteBase,
						Name: "without"}),
				)
				sites, errs := collect(im.open(t))
				qt.Assert(t, qt.HasLen(errs, 0))
				qt.Assert(t, qt.DeepEquals(sites, []Site{
					{Location: codeAddress, Offset: codeOffset, Base: test.noteBase,
						Semaphore: dataAddress, SemaphoreOffset: dataOffset, Name: "with"},
					{Location: codeAddress + 1, Offset: codeOffset + 1, Base: test.noteBase,
						Name: "without"},
				}))
			})
		})
	}
}

func TestSitesMalformed(t *testing.T) {
	good := Site{Location: codeAddress + 8, Provider: "good", Name: "site"}
	site := func(change func(s *Site)) func(im *image) []byte {
		return func(im *image) []byte {
			s := Site{Location: codeAddress, Provider: "p", Name: "n", Arguments: "a"}
			change(&s)
			return im.note(s)
		}
	}
	// cut makes a note of a descriptor without its last bytes.
	cut := func(n int) func(im *image) []byte {
		return func(im *image) []byte {
			d := im.descriptor(Site{Location: codeAddress, Provider: "p", Name: "n",
				Arguments: "a"})
			return im.RawNote(probeOwner, probeType, d[:len(d)-n], 4)
		}
	}
	for _, test := range []struct {
		name           string
		note           func(im *image) []byte
		want           error
		provider, text string // provider is followed by the same name, n
	}{
		{"no descriptor", func(im *image) []byte {
			return im.RawNote(probeOwner, probeType, nil,
				4)
		}, errNoteTooShort, "", "note 1: descriptor is too short.*"},
		{"descriptor of addresses", cut(6), errNoteTooShort, "",
			"note 1: descriptor is too short.*"},
		{"descriptor of two bytes more", cut(4), errNoteTooShort, "p",
			`note 1, probe "p:": descriptor is too short.*`},
		{"arguments without end", cut(1), errNoteUnterminated, "p",
			`note 1, probe "p:n": string is not terminated.*`},
		{"no arguments", cut(2), errNoteUnterminated, "p",
			`note 1, probe "p:n": string is not terminated.*`},
		{"name without end", cut(3), errNoteUnterminated, "p",
			`note 1, probe "p:": string is not terminated.*`},
		{"nothing but text", func(im *image) []byte {
			return im.RawNote(probeOwner, probeType, bytes.Repeat([]byte{'x'}, 100), 4)
		}, errNoteUnterminated, "", "note 1: string is not terminated.*"},
		{"location before the code", site(func(s *Site) { s.Location = codeAddress - 1 }),
			errLocation, "p", `note 1, probe "p:n": location is not in .*: 0x10fff`},
		{"location after the code", site(func(s *Site) { s.Location = codeAddress + codeSize }),
			errLocation, "p", ".*: 0x11100"},
		{"location in the data", site(func(s *Site) { s.Location = dataAddress }), errLocation, "p",
			".*: 0x35000"},
		{"location 0", site(func(s *Site) { s.Location = 0 }), errLocation, "p", ".*: 0x0"},
		{"semaphore in the code", site(func(s *Site) { s.Semaphore = codeAddress }), errSemaphore,
			"p", `note 1, probe "p:n": semaphore is not in .*: 0x11000`},
		{"semaphore nowhere", site(func(s *Site) { s.Semaphore = 0xffffffff }), errSemaphore, "p",
			".*: 0xffffffff"},
		{"semaphore in the bss", site(func(s *Site) { s.Semaphore = dataAddress + dataSize }),
			errSemaphoreInBSS, "p", ".*: 0x35040"},
		{"semaphore half in the bss",
			site(func(s *Site) { s.Semaphore = dataAddress + dataSize - 1 }), errSemaphoreInBSS,
			"p", ".*: 0x3503f"},
		{"semaphore half past the bss",
			site(func(s *Site) { s.Semaphore = dataAddress + dataSize + bssSize - 1 }),
			errSemaphore, "p", ".*: 0x3507f"},
		{"semaphore unaligned", site(func(s *Site) { s.Semaphore = dataAddress + 1 }),
			errSemaphoreUnaligned, "p", ".*: 0x35001"},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				im.AddNotes(im.note(good), test.note(im),
					im.note(Site{Location: codeAddress + 9, Provider: "good", Name: "site"}))
				f := im.open(t)
				sites, errs := collect(f)
				qt.Assert(t, qt.HasLen(sites, 2))
				qt.Assert(t, qt.HasLen(errs, 1))
				var broken *elffile.NoteError
				qt.Assert(t, qt.ErrorAs(errs[0], &broken))
				qt.Assert(t, qt.Equals(broken.Index, 1))
				qt.Assert(t, qt.ErrorIs(errs[0], test.want))
				qt.Assert(t, qt.Equals(broken.Provider, test.provider))
				qt.Assert(t, qt.ErrorMatches(errs[0], test.text))
			})
		})
	}
}

func TestSitesWithStringsWithoutEnd(t *testing.T) {
	// Nothing follows in which an end could be found by mistake.
	everyClass(t, func(t *testing.T, im *image) {
		d := im.descriptor(Site{Location: codeAddress, Provider: "provider", Name: "name",
			Arguments: "8@%rax"})
		addresses := 3 * len(im.Words(nil, 0))
		for end := addresses + 3; end < len(d); end++ {
			im.Sections = im.Sections[:1]
			note := im.RawNote(probeOwner, probeType, d[:end], 1)
			im.AddNotes(im.note(at(1)), note)
			sites, errs := collect(im.open(t))
			qt.Assert(t, qt.HasLen(sites, 1))
			qt.Assert(t, qt.HasLen(errs, 1))
			qt.Assert(t, qt.ErrorIs(errs[0], errNoteUnterminated))
		}
	})
}

func TestSitesWithSemaphoreInSegmentOfOneByte(t *testing.T) {
	im := newImage64()
	im.Segments[1].Data = im.Segments[1].Data[:1]
	im.AddNotes(im.note(Site{Location: codeAddress, Semaphore: dataAddress}))
	_, errs := collect(im.open(t))
	qt.Assert(t, qt.HasLen(errs, 1))
	qt.Assert(t, qt.ErrorIs(errs[0], errSemaphoreInBSS))
}

// The kernel counts a semaphore in the first writable segment that has its page
// of the file, unless that is read-only by then.
func TestSitesWithSemaphoreOnThePageOfTwoSegments(t *testing.T) {
	const page = 4096 // whatever the host has
	load := func(address, offset, size uint64, flags elf.ProgFlag) elf.ProgHeader {
		return elf.ProgHeader{Type: elf.PT_LOAD, Flags: flags | elf.PF_R, Vaddr: address, Off: offset,
			Filesz: size, Memsz: size}
	}
	readOnly := func(from, to uint64) elf.ProgHeader {
		return elf.ProgHeader{Type: elf.PT_GNU_RELRO, Flags: elf.PF_R, Vaddr: from, Memsz: to - from}
	}
	code := load(page, page/4, page/4, elf.PF_X)
	first := load(2*page+page/2, page/2, page/4, elf.PF_W)
	second := load(3*page+page*3/4, page*3/4, page/4, elf.PF_W)
	for _, test := range []struct {
		name       string
		segments   []elf.ProgHeader
		semaphore  uint64
		miscounted uint64
		want       error
	}{
		{"in the second", []elf.ProgHeader{code, first, second, readOnly(first.Vaddr, 3*page)},
			second.Vaddr, page, nil},
		{"of larger pages", []elf.ProgHeader{code, first, load(7*page, 3*page, page, elf.PF_W)},
			7 * page, 4 * page, nil},
		{"of no pages", []elf.ProgHeader{code, first, load(32*page, 16*page, page, elf.PF_W)},
			32 * page, 0, nil},
		{"in the first", []elf.ProgHeader{code, first, second}, first.Vaddr, 0, nil},
		{"never read-only", []elf.ProgHeader{code, first, second}, second.Vaddr, 0,
			errSemaphoreUncounted},
		{"not all of the page read-only", []elf.ProgHeader{code, first, second,
			readOnly(first.Vaddr, 3*page-1)}, second.Vaddr, 0, errSemaphoreUncounted},
		{"on a later page", []elf.ProgHeader{code, first, load(3*page, page, page, elf.PF_W)}, 3*page + 2,
			2 * page, nil},
		{"beside code", []elf.ProgHeader{code, load(3*page+page/2, page/2, page/4, elf.PF_W)},
			3*page + page/2, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			note := im.note(Site{Location: page, Semaphore: test.semaphore, Provider: "p"})
			header := elf.FileHeader{Class: elf.ELFCLASS64, Data: elf.ELFDATA2LSB, Type: elf.ET_DYN}
			for site, err := range NoteSites(note, header, 0, test.segments) {
				qt.Check(t, qt.ErrorIs(err, test.want))
				qt.Check(t, qt.Equals(site.SemaphoreMiscounted, test.miscounted))
			}
		})
	}
}

func TestSitesAtTheFileHeaderAreMalformed(t *testing.T) {
	// Offset 0 would stand for no offset.
	im := newImage64()
	im.Segments[0].Offset, im.Segments[1].Offset = new(uint64), new(uint64)
	im.AddNotes(
		im.note(Site{Location: codeAddress}),
		im.note(Site{Location: codeAddress + 1, Semaphore: dataAddress}),
		im.note(Site{Location: codeAddress + 2, Semaphore: dataAddress + 2}),
	)
	sites, errs := collect(im.open(t))
	qt.Assert(t, qt.DeepEquals(sites, []Site{{Location: codeAddress + 2, Offset: 2,
		Semaphore: dataAddress + 2, SemaphoreOffset: 2}}))
	qt.Assert(t, qt.HasLen(errs, 2))
	qt.Assert(t, qt.ErrorIs(errs[0], errLocation))
	qt.Assert(t, qt.ErrorIs(errs[1], errSemaphore))
}

func TestSitesOfFilesWithoutCodeHaveNoOffsets(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(im *image)
	}{
		{"debug file", func(im *image) { im.Sections[0].Kind = elf.SHT_NOBITS }},
		{"object file", func(im *image) { im.Type = elf.ET_REL; im.Segments = nil }},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			site := Site{Location: codeAddress + 1, Semaphore: dataAddress + 2, Provider: "p",
				Name: "n", Arguments: "a"}
			elsewhere := Site{Location: 0x123, Semaphore: 0x457, Provider: "p", Name: "n",
				Arguments: "a"}
			im.AddNotes(im.note(site), im.note(elsewhere))
			f := im.open(t)
			sites, errs := collect(f)
			qt.Assert(t, qt.HasLen(errs, 0))
			qt.Assert(t, qt.DeepEquals(sites, []Site{site, elsewhere}))
		})
	}
}

func TestSitesCanBeLeftAtAnyPoint(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(Site{Location: codeAddress}), im.note(Site{}),
		im.note(Site{Location: codeAddress + 1}))
	f := im.open(t)
	for stop := 1; stop <= 3; stop++ {
		count := 0
		for range f.Sites() {
			if count++; count == stop {
				break
			}
		}
		qt.Assert(t, qt.Equals(count, stop))
	}
}

func TestSitesShareMemory(t *testing.T) {
	im := newImage64()
	for i := range 200 {
		im.Sections = append(im.Sections, elfimage.Section{Name: ".note.stapsdt",
			Kind: elf.SHT_NOTE, Data: bytes.Join([][]byte{
				im.note(Site{Location: codeAddress + uint64(i), Provider: "provider", Name: "name",
					Arguments: "8@%rax"}),
			}, nil)})
	}
	f := im.open(t)
	allocations := testing.AllocsPerRun(10, func() {
		count := 0
		for _, err := range f.Sites() {
			if err != nil {
				t.Error(err)
			}
			count++
		}
		if count != 200 {
			t.Errorf("%d sites", count)
		}
	})
	// The iterator itself may take some; what counts is that it is not 200.
	qt.Assert(t, qt.IsTrue(allocations < 10), qt.Commentf("%v allocations", allocations))
}

func TestNoteErrorUnwrapsToItsCause(t *testing.T) {
	err := error(&elffile.NoteError{Index: 3, Provider: "a\x1b[31m", Name: "b",
		Err: &addressError{0x10, errLocation}})
	qt.Assert(t, qt.IsTrue(errors.Is(err, errLocation)))
	qt.Assert(t,
		qt.Equals(err.Error(),
			`note 3, probe "a\x1b[31m:b": location is not in the file part of an executable segment: 0x10`))
}

func TestNoteSizeIsThatOfAllNoteSections(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		size := 0
		for i := range 3 {
			note := im.note(Site{Location: codeAddress + uint64(i), Provider: "p", Name: "n"})
			im.AddNotes(note)
			size += len(note)
		}
		f := im.open(t)
		qt.Assert(t, qt.Equals(f.noteSize(), size))
	})
	none := newImage64()
	qt.Assert(t, qt.Equals(none.open(t).noteSize(), 0))
}

// TestUsualCodeIsFoundAsAnyOther compares the quick way with the search of all
// segments.
func TestUsualCodeIsFoundAsAnyOther(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	number := func() uint64 {
		return []uint64{0, 1<<32 - 2,
			1<<64 - 3}[random.IntN(3)] + random.Uint64N(6)
	}
	for range 100_000 {
		f := &File{elf: new(elffile.File)}
		for range random.IntN(4) {
			s := elffile.Segment{Address: number(), Offset: number(), FileSize: number(),
				Flags: elf.PF_R}
			if random.IntN(2) == 0 {
				s.Flags |= elf.PF_X
			}
			if s.Offset+s.FileSize >= s.Offset {
				f.elf.Segments = append(f.elf.Segments, s)
			}
		}
		f.code = usualCode(f.elf.Segments)
		location := number()
		if skip := location - f.code.Address; skip < f.code.FileSize {
			want, _, _, err := f.offsets(location, 0)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(skip+f.code.Offset, want),
				qt.Commentf("%+v: %#x", f.elf.Segments, location))
		}
	}
}

// Notes that another reader has read give the sites of the file.
func TestSitesOfNotes(t *testing.T) {
	paths, err := filepath.Glob("testdata/*")
	qt.Assert(t, qt.IsNil(err))
	compared := 0
	for _, path := range paths {
		file, err := elf.Open(path)
		if err != nil || file.Type == elf.ET_REL || file.Section(".note.stapsdt") == nil {
			continue
		}
		defer file.Close()
		notes, err := file.Section(".note.stapsdt").Data()
		qt.Assert(t, qt.IsNil(err))
		var base uint64
		if section := file.Section(".stapsdt.base"); section != nil {
			base = section.Addr
		}
		f, err := Open(path)
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		var segments []elf.ProgHeader
		if !f.IsDebugFile() {
			for _, p := range file.Progs {
				segments = append(segments, p.ProgHeader)
			}
		}
		want, wantErrs := collect(f)
		var got []Site
		var errs []error
		for site, err := range NoteSites(notes, file.FileHeader, base, segments) {
			if err != nil {
				errs = append(errs, err)
			} else {
				got = append(got, site)
			}
		}
		qt.Check(t, qt.DeepEquals(got, want), qt.Commentf(path))
		qt.Check(t, qt.CmpEquals(errs, wantErrs, cmpErrors), qt.Commentf(path))
		compared++
	}
	qt.Assert(t, qt.IsTrue(compared >= 3))

	for _, header := range []elf.FileHeader{{}, {Class: elf.ELFCLASS64},
		{Class: elf.ELFCLASS64, Data: elf.ELFDATA2LSB, Type: elf.ET_REL}} {
		count := 0
		for site, err := range NoteSites(nil, header, 0, nil) {
			qt.Check(t, qt.IsNotNil(err))
			qt.Check(t, qt.Equals(site, Site{}))
			count++
		}
		qt.Check(t, qt.Equals(count, 1))
	}
}
