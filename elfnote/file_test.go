// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestHeaderIsReadInEveryClassAndByteOrder(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.Machine = elf.EM_S390
		f := im.open(t)
		qt.Assert(t, qt.Equals(f.Class(), im.Class))
		qt.Assert(t, qt.Equals(f.ByteOrder().String(), im.Order.String()))
		qt.Assert(t, qt.Equals(f.Machine(), elf.EM_S390))
		qt.Assert(t, qt.Equals(f.Type(), elf.ET_DYN))
		qt.Assert(t, qt.DeepEquals(slices.Collect(f.Segments()), []Segment{
			{Address: codeAddress, Offset: codeOffset, FileSize: codeSize, MemorySize: codeSize, Flags: elf.PF_R | elf.PF_X},
			{Address: dataAddress, Offset: dataOffset, FileSize: dataSize, MemorySize: dataSize + bssSize, Flags: elf.PF_R | elf.PF_W},
		}))
	})
}

func TestKind(t *testing.T) {
	missing := func(im *image) { im.Sections[0].Kind = elf.SHT_NOBITS }
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   Kind
		text   string
	}{
		{"ET_EXEC is an executable", func(im *image) { im.Type = elf.ET_EXEC }, Executable, "executable"},
		{"ET_DYN is position-independent", func(im *image) {}, PositionIndependent, "position-independent file"},
		{"ET_REL is relocatable", func(im *image) { im.Type = elf.ET_REL }, Relocatable, "object file"},
		{"ET_DYN whose code is missing is a debug file", missing, DebugFile, "separate debug file"},
		{"ET_EXEC whose code is missing is a debug file", func(im *image) { im.Type = elf.ET_EXEC; missing(im) }, DebugFile, "separate debug file"},
		{"ET_REL whose code is missing is relocatable", func(im *image) { im.Type = elf.ET_REL; missing(im) }, Relocatable, "object file"},
		{"some code is enough", func(im *image) {
			im.Sections = append(im.Sections, im.Sections[0])
			missing(im)
		}, PositionIndependent, "position-independent file"},
		{"a file without sections has its code", func(im *image) { im.Edit = func(b []byte) { clear(b[40:48]) } }, PositionIndependent, "position-independent file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			qt.Assert(t, qt.Equals(im.open(t).Kind(), test.want))
			qt.Assert(t, qt.Equals(test.want.String(), test.text))
		})
	}
	qt.Assert(t, qt.Equals(Kind(77).String(), "Kind(77)"))
}

func TestExtendedNumberingIsTakenFromSectionZero(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.Extended = true
		im.AddNotes(im.note(Site{Location: codeAddress, Provider: "p", Name: "n"}))
		f := im.open(t)
		qt.Assert(t, qt.HasLen(slices.Collect(f.Segments()), 2))
		sites, errs := collect(f)
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, 1))
	})
}

func TestManySections(t *testing.T) {
	// More sections than fit a window, and more than sixteen bits can count.
	for _, count := range []int{chunkSize / elfimage.SectionSize64, 3 * chunkSize / elfimage.SectionSize64, 70000} {
		im := newImage64()
		im.Extended = true
		im.Segments[1].Data = nil
		for range count {
			im.Sections = append(im.Sections, elfimage.Section{Name: "x", Kind: elf.SHT_PROGBITS})
		}
		im.AddNotes(im.note(Site{Location: codeAddress, Provider: "p", Name: "n"}))
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, 1))
	}
}

func TestManyProgramHeaders(t *testing.T) {
	im := newImage64()
	for range 3 * chunkSize / elfimage.ProgramSize64 {
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_GNU_STACK})
	}
	im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_LOAD, Address: 0x99000, Data: make([]byte, 8)})
	segments := slices.Collect(im.open(t).Segments())
	qt.Assert(t, qt.HasLen(segments, 3))
	qt.Assert(t, qt.Equals(segments[2].Address, 0x99000))
}

func TestFilesThatAreRefused(t *testing.T) {
	at := func(offset int, values ...byte) func(im *image) {
		return func(im *image) { im.Edit = func(b []byte) { copy(b[offset:], values) } }
	}
	const programs, sections = 32, 40 // offsets of the tables' offsets in the file header
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   error
		text   string
	}{
		{"wrong magic", at(0, 'M', 'Z'), ErrNotELF, "not an ELF file"},
		{"class 3", at(elf.EI_CLASS, 3), ErrMalformed, "file header: unknown class 3: .*"},
		{"byte order 0", at(elf.EI_DATA, 0), ErrMalformed, "file header: unknown byte order 0: .*"},
		{"version 2", at(elf.EI_VERSION, 2), ErrMalformed, "file header: unknown ELF version 2: .*"},
		{"core file", func(im *image) { im.Type = elf.ET_CORE }, ErrFileType, "ET_CORE: .*"},
		{"type 0", func(im *image) { im.Type = elf.ET_NONE }, ErrFileType, "ET_NONE: .*"},
		{"size of program headers", at(54, 57), ErrMalformed, "program headers of 57 bytes: .*"},
		{"size of section headers", at(58, 63), ErrMalformed, "section headers of 63 bytes: .*"},
		{"program headers past the end", at(programs, 0, 0, 0, 1), ErrTruncated, "program header 0: .*"},
		{"program headers past all files", at(programs, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrTruncated, "program header 0: .*"},
		{"section headers past the end", at(sections, 0, 0, 0, 1), ErrTruncated, "section names: .*"},
		{"section headers wrap around", at(sections, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff), ErrTruncated, "section names: .*"},
		{"section headers fewer than counted", at(60, 99), ErrTruncated, "section names: .*"},
		{"section names in no section", at(62, 3), ErrMalformed, "section names in section 3 of 3: .*"},
		{"segment that wraps around", func(im *image) {
			im.Segments[1].Offset, im.Segments[1].Size = elfimage.Ptr[uint64](1<<63), elfimage.Ptr[uint64](1<<63)
		}, ErrMalformed, "program header 1: .*"},
		{"too many segments", func(im *image) {
			for range 1024 {
				im.Segments = append(im.Segments, im.Segments[1])
			}
			for i := range im.Segments {
				im.Segments[i].Data = nil
			}
		}, ErrTooLarge, "more than 1024 segments: .*"},
		{"numbers in a section that does not exist", func(im *image) {
			im.Extended = true
			at(sections, 0, 0, 0, 0, 0, 0, 0, 0)(im)
		}, ErrMalformed, "numbers in a section header that does not exist: .*"},
		{"too many sections", func(im *image) {
			im.Extended = true
			im.Edit = func(b []byte) { im.Order.PutUint64(b[im.Order.Uint64(b[sections:])+32:], 1<<32) }
		}, ErrTooLarge, "4294967296 section headers: .*"},
		{"too many program headers", func(im *image) {
			im.Extended = true
			im.Edit = func(b []byte) { im.Order.PutUint32(b[im.Order.Uint64(b[sections:])+44:], 1<<31) }
		}, ErrTooLarge, "2147483648 program headers: .*"},
		{"large section names", func(im *image) { im.EditSection(2, 32, 4<<30) }, ErrTooLarge, "section names: 4294967296 bytes: .*"},
		{"section names past the end", func(im *image) { im.EditSection(2, 32, 64<<20) }, ErrTruncated, "section names: .*"},
		{"section names past all files", func(im *image) { im.EditSection(2, 24, 1<<64-1) }, ErrTruncated, "section names: .*"},
		{"compressed section names", func(im *image) { im.EditSection(2, 8, uint64(elf.SHF_COMPRESSED)) }, ErrCompressed, "section names: .*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			f, err := NewFile(bytes.NewReader(im.Bytes()))
			qt.Assert(t, qt.IsNil(f))
			qt.Assert(t, qt.ErrorIs(err, test.want))
			qt.Assert(t, qt.ErrorMatches(err, test.text))
		})
	}
}

func TestEveryTruncationIsAnErrorOrHasNoProbes(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.AddNotes(im.note(Site{Location: codeAddress, Provider: "p", Name: "n"}))
		b := im.Bytes()
		for size := range b {
			f, err := NewFile(bytes.NewReader(b[:size]))
			// The section headers are at the end.
			qt.Assert(t, qt.IsNil(f))
			want := ErrTruncated
			if size < 4 {
				want = ErrNotELF
			}
			qt.Assert(t, qt.ErrorIs(err, want), qt.Commentf("%d bytes", size))
		}
	})
}

func TestFilesWithoutProbes(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(im *image)
	}{
		{"no note section", func(im *image) {}},
		{"empty note section", func(im *image) { im.AddNotes() }},
		{"note section without content", func(im *image) {
			im.AddNotes()
			im.Sections[1].Kind, im.Sections[1].Size = elf.SHT_NOBITS, elfimage.Ptr[uint64](1<<40)
		}},
		{"no section headers", func(im *image) { im.AddNotes(im.note(Site{})); im.Edit = func(b []byte) { clear(b[40:48]) } }},
		{"no section headers but an offset", func(im *image) { im.Edit = func(b []byte) { b[47] = 1; clear(b[58:64]) } }},
		{"no section names", func(im *image) { im.AddNotes(im.note(Site{})); im.Edit = func(b []byte) { clear(b[62:64]) } }},
		{"section names without content", func(im *image) {
			im.AddNotes(im.note(Site{}))
			im.Edit = func(b []byte) { b[int(im.Order.Uint64(b[40:]))+3*elfimage.SectionSize64+4] = byte(elf.SHT_NOBITS) }
		}},
		{"names past the section names", func(im *image) {
			im.AddNotes(im.note(Site{}))
			im.Edit = func(b []byte) { b[int(im.Order.Uint64(b[40:]))+2*elfimage.SectionSize64+3] = 1 }
		}},
		{"longer name", func(im *image) { im.AddNotes(im.note(Site{})); im.Sections[1].Name += "x" }},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			f := im.open(t)
			sites, errs := collect(f)
			qt.Assert(t, qt.HasLen(sites, 0))
			qt.Assert(t, qt.HasLen(errs, 0))
			listing, err := f.Probes()
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.HasLen(listing.Probes, 0))
			qt.Assert(t, qt.HasLen(listing.Malformed, 0))
		})
	}
}

func TestOpenKeepsTheFileOpenUntilClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	b := newImage64().Bytes()
	qt.Assert(t, qt.IsNil(os.WriteFile(path, b, 0o600)))
	f, err := Open(path)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(f.Name(), path))
	qt.Assert(t, qt.Equals(f.OSFile().Name(), path))
	qt.Assert(t, qt.IsNil(os.Remove(path)))

	got := make([]byte, 8)
	n, err := f.ReadAt(got, codeOffset)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.DeepEquals(got[:n], b[codeOffset:codeOffset+8]))

	qt.Assert(t, qt.IsNil(f.Close()))
	_, err = f.ReadAt(got, 0)
	qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
	qt.Assert(t, qt.IsNil(f.Close()))
}

func TestNewFileLeavesTheFileOpen(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, newImage64().Bytes(), 0o600)))
	file, err := os.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	_, err = file.Seek(100, io.SeekStart)
	qt.Assert(t, qt.IsNil(err))

	f, err := NewFile(file)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(f.OSFile(), file))
	qt.Assert(t, qt.Equals(f.Name(), path))
	qt.Assert(t, qt.IsNil(f.Close()))
	offset, err := file.Seek(0, io.SeekCurrent)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.Equals(offset, 100))
}

func TestFileFromAnotherReaderHasNoName(t *testing.T) {
	f := newImage64().open(t)
	qt.Assert(t, qt.Equals(f.Name(), ""))
	qt.Assert(t, qt.IsNil(f.OSFile()))
	qt.Assert(t, qt.IsNil(f.Close()))
}

func TestOpenErrorsNameTheFile(t *testing.T) {
	dir := t.TempDir()
	_, err := Open(filepath.Join(dir, "missing"))
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
	qt.Assert(t, qt.ErrorMatches(err, ".*missing.*"))

	path := filepath.Join(dir, "text")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, []byte("#!/bin/sh\n"), 0o600)))
	_, err = Open(path)
	qt.Assert(t, qt.ErrorIs(err, ErrNotELF))
	qt.Assert(t, qt.ErrorMatches(err, ".*/text: not an ELF file"))

	_, err = Open(dir)
	qt.Assert(t, qt.IsNotNil(err))
}

// failingReader fails where it would read past an offset.
type failingReader struct {
	data  []byte
	limit int64
}

var errFailing = errors.New("input/output error")

func (r failingReader) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > r.limit {
		return 0, errFailing
	}
	return bytes.NewReader(r.data).ReadAt(p, off)
}

func TestErrorsOfTheReaderAreNotTruncation(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(Site{Location: codeAddress}))
	b := im.Bytes()
	sections := int64(im.Order.Uint64(b[40:]))
	for _, limit := range []int64{0, sections, sections + 64} {
		_, err := NewFile(failingReader{b, limit})
		qt.Assert(t, qt.ErrorIs(err, errFailing))
		qt.Assert(t, qt.IsFalse(errors.Is(err, ErrTruncated)))
	}
}

func TestOffset(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		const bssAddress = 0x90000 // a segment of which nothing is in the file
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_LOAD, Flags: elf.PF_R | elf.PF_W, Address: bssAddress, BSS: 0x100})
		f := im.open(t)
		for _, test := range []struct{ address, want uint64 }{
			{codeAddress, codeOffset},
			{codeAddress + codeSize - 1, codeOffset + codeSize - 1},
			{dataAddress + 1, dataOffset + 1},
		} {
			got, err := f.Offset(test.address)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(got, test.want))
		}
		for _, address := range []uint64{0, codeAddress - 1, codeAddress + codeSize, dataAddress + dataSize, bssAddress, bssAddress + 1, 1<<64 - 1} {
			_, err := f.Offset(address)
			qt.Assert(t, qt.ErrorIs(err, ErrNotMapped))
		}
	})
	im := newImage64()
	im.Type = elf.ET_REL
	_, err := im.open(t).Offset(codeAddress)
	qt.Assert(t, qt.ErrorIs(err, ErrNoCode))
}
