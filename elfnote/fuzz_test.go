// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// FuzzFile reads any file as an ELF file, through all that is exported.
func FuzzFile(f *testing.F) {
	for _, k := range kept {
		b, err := os.ReadFile(filepath.Join("testdata", k.name))
		qt.Assert(f, qt.IsNil(err))
		f.Add(b, "counter")
	}
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []elfimage.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			im := newImage(class, order)
			im.Page = 0x180 // fuzzing small files is faster
			im.AddBase()
			im.AddDynamic(uint64(elf.DT_PLTGOT), 0x4000, 0, 0)
			im.AddNotes(im.note(at(1)), im.note(at(2)))
			im.AddNotes(im.note(at(1)), im.note(Site{}))
			im.AddSymbols(elf.SHT_SYMTAB, "",
				elfimage.NewSymbol("counter", 0x10, elf.STT_OBJECT, 1))
			f.Add(im.Bytes(), "counter")
			im.Extended = true
			f.Add(im.Bytes(), "x")
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, symbol string) {
		file, err := NewFile(bytes.NewReader(b))
		if err != nil {
			if file != nil {
				t.Error("an error and a file")
			}
			return
		}
		checkSites(t, file)
		elffile.OSFile(file)
		file.Header()
		file.IsDebugFile()
		if found, err := file.Symbol(symbol); err != nil && found != (elf.Symbol{}) {
			t.Error("an error and a symbol")
		}
		file.IsProgram()
		file.Symbol("")
		if got, err := file.Symbol(elffile.GOT); err != nil && got != (elf.Symbol{}) {
			t.Error("an error and a global offset table")
		}
		if id, err := file.BuildID(); (err != nil) != (id == "") {
			t.Errorf("build ID %q: %v", id, err)
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	})
}

// checkSites checks what holds for the sites of any file.
func checkSites(t *testing.T, f *File) {
	sites, errs := collect(f)
	again, errsAgain := collect(f)
	if len(sites) != len(again) || len(errs) != len(errsAgain) {
		t.Errorf("%d sites and %d errors, then %d and %d", len(sites), len(errs), len(again),
			len(errsAgain))
	}
	seen := map[Site]bool{}
	for _, s := range sites {
		if seen[s] && !f.isObject() {
			t.Errorf("twice: %+v", s)
		}
		seen[s] = true
		attachable := isAttachable(f)
		if attachable != (s.Offset != 0) || (attachable &&
			s.Semaphore != 0) != (s.SemaphoreOffset != 0) {
			t.Errorf("%v: %+v", kindOf(f), s)
		}
		if f.Header().Class == elf.ELFCLASS32 && (s.Location|s.Semaphore|s.Base)>>32 != 0 {
			t.Errorf("addresses of more than 32 bits: %+v", s)
		}
		for _, text := range []string{s.Provider, s.Name, s.Arguments} {
			if bytes.IndexByte([]byte(text), 0) >= 0 {
				t.Errorf("a string with a NUL: %q", text)
			}
		}
	}
	broken := 0
	for i, err := range errs {
		if note, ok := err.(*elffile.NoteError); ok {
			broken++
			if note.Index < 0 || note.Err == nil || err.Error() == "" {
				t.Errorf("note error %+v", note)
			}
		} else if i != len(errs)-1 {
			t.Errorf("goes on after %v", err)
		}
	}

	// A section that cannot be read to its end would be read so far.
	if broken == len(errs) && !slices.Equal(notesThrough(f, 1), notesThrough(f, elffile.ChunkSize)) {
		t.Error("other notes through a smaller buffer")
	}

	// Any bytes are a name, also none: a pattern selects the probe with these
	// names, and no other.
	for _, p := range []Site{slices.Concat(sites, []Site{{}})[0], {}} {
		exact := Exact(p.Provider, p.Name)
		for _, s := range sites {
			if same := s.Provider == p.Provider && s.Name == p.Name; exact.Match(s.Provider, s.Name) != same {
				t.Errorf("%q selects %q:%q: %v", exact, s.Provider, s.Name, !same)
			}
		}
	}
}

// FuzzNotes reads anything as one or two note sections of a good file.
func FuzzNotes(f *testing.F) {
	for _, wide := range []bool{false, true} {
		for _, big := range []bool{false, true} {
			im := fuzzImage(wide, big)
			f.Add(wide, big, uint8(4), append(im.note(at(1)), im.note(at(1))...), im.note(at(2)))
			f.Add(wide, big, uint8(8), im.RawNote(probeOwner, probeType, im.descriptor(at(3)), 8),
				[]byte{})
			f.Add(wide, big, uint8(0), append(im.RawNote("GNU\x00", 3, []byte{1, 2, 3}, 4),
				im.note(Site{})...), im.RawNote("", 0, nil, 4))
			f.Add(wide, big, uint8(4), im.note(Site{Location: codeAddress,
				Semaphore: dataAddress + dataSize}), []byte{0, 0, 0})
			f.Add(wide, big, uint8(4), bytes.Repeat([]byte{0xff}, 40), im.note(at(5))[:30])
			f.Add(wide, big, uint8(4), append(im.note(at(1)), im.note(at(6))...), []byte{})
		}
	}
	for _, k := range kept { // what compilers write
		file, err := elf.Open(filepath.Join("testdata", k.name))
		qt.Assert(f, qt.IsNil(err))
		notes, err := file.Section(".note.stapsdt").Data()
		qt.Assert(f, qt.IsNil(err))
		f.Add(k.class == elf.ELFCLASS64, k.big, uint8(4), notes, []byte{})
		qt.Assert(f, qt.IsNil(file.Close()))
	}
	f.Fuzz(func(t *testing.T, wide, big bool, align uint8, first, second []byte) {
		im := fuzzImage(wide, big)
		im.AddNotes(first)
		im.Sections[len(im.Sections)-1].Align = uint64(align)
		im.AddNotes(second)
		b := im.Bytes()
		file, err := NewFile(bytes.NewReader(b))
		if err != nil {
			t.Fatal(err)
		}
		checkSites(t, file)
		got, errs := collect(file)
		if align == 4 && len(second) == 0 {
			checkNotes(t, im, first, got, errs)
		}
		var broken []int
		for _, err := range errs {
			broken = append(broken, err.(*elffile.NoteError).Index)
		}
		want, wantBroken := plainSites(im, file, []plainSection{{first, align}, {second, 4}})
		if !slices.Equal(got, want) || !slices.Equal(broken, wantBroken) {
			t.Errorf("sites %+v and broken notes %v, not %+v and %v", got, broken, want, wantBroken)
		}
	})
}

// checkNotes checks that the bytes of a section alone say what the file does.
func checkNotes(t *testing.T, im *image, section []byte, want []Site, wantErrs []error) {
	header := elf.FileHeader{Class: im.Class, Data: elf.ELFDATA2LSB, Type: im.Type}
	if im.Order == elfimage.ByteOrder(binary.BigEndian) {
		header.Data = elf.ELFDATA2MSB
	}
	var segments []elf.ProgHeader
	for _, s := range im.Segments {
		size := uint64(len(s.Data))
		segments = append(segments, elf.ProgHeader{Type: s.Kind, Flags: s.Flags, Vaddr: s.Address,
			Off: uint64(im.Page * (len(segments) + 1)), Filesz: size, Memsz: size + s.BSS})
	}
	var got []Site
	var errs []string
	for site, err := range NoteSites(section, header, baseAddress, segments) {
		if err != nil {
			errs = append(errs, err.Error())
		} else {
			got = append(got, site)
		}
	}
	var texts []string
	for _, err := range wantErrs {
		texts = append(texts, err.Error())
	}
	if !slices.Equal(got, want) || !slices.Equal(errs, texts) {
		t.Errorf("the notes alone: %+v, %q; in a file: %+v, %q", got, errs, want, texts)
	}
}

type plainSection struct {
	data  []byte
	align uint8
}

// plainSites reads notes as their format is described, without any thought of
// speed, and also returns the numbers of those that are broken.
func plainSites(im *image, f *File, sections []plainSection) (sites []Site, broken []int) {
	seen := map[Site]bool{}
	index := -1
	for _, s := range sections {
		align := uint64(4)
		if s.align == 8 {
			align = 8
		}
		word := func(at uint64) uint64 { return uint64(im.Order.Uint32(s.data[at:])) }
		up := func(at uint64) uint64 { return (at + align - 1) / align * align }
		size := uint64(len(s.data))
		for at := uint64(0); at < size; {
			if size-at < 12 {
				if len(bytes.Trim(s.data[at:], "\x00")) > 0 {
					index++
					broken = append(broken, index)
				}
				break
			}
			index++
			ownerEnd := at + 12 + word(at)
			start := at + up(12+word(at))
			stop := start + word(at+4)
			if ownerEnd > size || stop > size && stop != start {
				broken = append(broken, index)
				break
			}
			kind, owner, descriptor := word(at+8), string(s.data[at+12:ownerEnd]), ""
			if stop <= size {
				descriptor = string(s.data[start:stop])
			}
			at += up(stop - at)
			if owner != "stapsdt\x00" || kind != 3 {
				continue
			}
			if site, ok := plainSite(im, f, descriptor); !ok {
				broken = append(broken, index)
			} else if !seen[site] {
				seen[site] = true
				sites = append(sites, site)
			}
		}
	}
	return sites, broken
}

func plainSite(im *image, f *File, descriptor string) (s Site, ok bool) {
	word := 4
	if im.Wide() {
		word = 8
	}
	if len(descriptor) < 3*word {
		return s, false
	}
	var addresses [3]uint64
	for i := range addresses {
		if b := []byte(descriptor[i*word:]); im.Wide() {
			addresses[i] = im.Order.Uint64(b)
		} else {
			addresses[i] = uint64(im.Order.Uint32(b))
		}
	}
	texts := strings.Split(descriptor[3*word:], "\x00")
	if len(texts) < 4 {
		return s, false
	}
	s = Site{Location: addresses[0], Base: addresses[1], Semaphore: addresses[2],
		Provider: texts[0], Name: texts[1], Arguments: texts[2]}
	if s.Base != 0 {
		mask := uint64(1)<<(8*word) - 1
		s.Location = (s.Location - s.Base + baseAddress) & mask
		if s.Semaphore != 0 {
			s.Semaphore = (s.Semaphore - s.Base + baseAddress) & mask
		}
	}
	code := f.elf.Segment(s.Location, 1, 0)
	if code == nil || s.Location >= dataAddress {
		return s, false
	}
	s.Offset = s.Location - code.Address + code.Offset
	if s.Semaphore != 0 {
		data := f.elf.Segment(s.Semaphore, 1, 0)
		if data == nil || s.Semaphore < dataAddress || s.Semaphore%2 != 0 {
			return s, false
		}
		s.SemaphoreOffset = s.Semaphore - data.Address + data.Offset
	}
	return s, true
}

func fuzzImage(wide, big bool) *image {
	class, order := elf.ELFCLASS32, elfimage.ByteOrder(binary.LittleEndian)
	if wide {
		class = elf.ELFCLASS64
	}
	if big {
		order = binary.BigEndian
	}
	im := newImage(class, order)
	im.Page = 0x180
	im.AddBase()
	return im
}
