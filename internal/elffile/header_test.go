// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/elf"
	"errors"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestOpenReadsHeaders(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.Machine = elf.EM_S390
		f := im.open(t)
		qt.Assert(t, qt.Equals(f.Class(), im.Class))
		qt.Assert(t, qt.Equals(f.Words.Order().String(), im.Order.String()))
		qt.Assert(t, qt.Equals(f.Machine, elf.EM_S390))
		qt.Assert(t, qt.Equals(f.Type, elf.ET_DYN))
		qt.Assert(t, qt.DeepEquals(f.Segments, []Segment{
			{Address: codeAddress, Offset: codeOffset, FileSize: codeSize, MemorySize: codeSize,
				Flags: elf.PF_R | elf.PF_X},
			{Address: dataAddress, Offset: dataOffset, FileSize: dataSize,
				MemorySize: dataSize + elfimage.BSSSize, Flags: elf.PF_R | elf.PF_W},
		}))
	})
}

func TestOpenManyProgramHeaders(t *testing.T) {
	im := newImage64()
	for range 3 * ChunkSize / elfimage.ProgramSize64 {
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_GNU_STACK})
	}
	im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_LOAD, Address: 0x99000,
		Data: make([]byte, 8)})
	segments := im.open(t).Segments
	qt.Assert(t, qt.HasLen(segments, 3))
	qt.Assert(t, qt.Equals(segments[2].Address, 0x99000))
}

func TestOpenRefuses(t *testing.T) {
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
		{"version 2", at(elf.EI_VERSION, 2), ErrMalformed,
			"file header: unknown ELF version 2: .*"},
		{"core file", func(im *image) { im.Type = elf.ET_CORE }, ErrFileType, "ET_CORE: .*"},
		{"type 0", func(im *image) { im.Type = elf.ET_NONE }, ErrFileType, "ET_NONE: .*"},
		{"size of program headers", at(54, 57), ErrMalformed, "program headers of 57 bytes: .*"},
		{"size of section headers", at(58, 63), ErrMalformed, "section headers of 63 bytes: .*"},
		{"program headers past the end", at(programs, 0, 0, 0, 1), ErrTruncated,
			"program header 0: .*"},
		{"program headers past all files", at(programs, 0xf0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff), ErrTruncated, "program header 0: .*"},
		{"section headers past the end", at(sections, 0, 0, 0, 1), ErrTruncated,
			"section names: .*"},
		{"section headers wrap around", at(sections, 0xc0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff,
			0xff), ErrTruncated, "section names: .*"},
		{"section headers fewer than counted", at(60, 99), ErrTruncated, "section names: .*"},
		{"section names in no section", at(62, 3), ErrMalformed,
			"section names in section 3 of 3: .*"},
		{"segment that wraps around", func(im *image) {
			im.Segments[1].Offset, im.Segments[1].Size = elfimage.Ptr[uint64](1<<63),
				elfimage.Ptr[uint64](1<<63)
		}, ErrMalformed, "program header 1: .*"},
		{"too many segments", func(im *image) {
			for range maxSegments {
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
			im.Edit = func(b []byte) {
				im.Order.PutUint64(b[im.Order.Uint64(b[sections:])+32:], 1<<32)
			}
		}, ErrTooLarge, "4294967296 section headers: .*"},
		{"too many program headers", func(im *image) {
			im.Extended = true
			im.Edit = func(b []byte) {
				im.Order.PutUint32(b[im.Order.Uint64(b[sections:])+44:], 1<<31)
			}
		}, ErrTooLarge, "2147483648 program headers: .*"},
		{"large section names", func(im *image) { im.EditSection(2, 32, 4<<30) }, ErrTooLarge,
			"section names: 4294967296 bytes: .*"},
		{"section names past the end", func(im *image) { im.EditSection(2, 32, maxSectionNames) },
			ErrTruncated, "section names: .*"},
		{"section names past all files", func(im *image) { im.EditSection(2, 24, 1<<64-1) },
			ErrTruncated, "section names: .*"},
		{"compressed section names", func(im *image) {
			im.EditSection(2, 8,
				uint64(elf.SHF_COMPRESSED))
		}, ErrCompressed, "section names: .*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			test.change(im)
			f, err := New(bytes.NewReader(im.Bytes()))
			qt.Assert(t, qt.IsNil(f))
			qt.Assert(t, qt.ErrorIs(err, test.want))
			qt.Assert(t, qt.ErrorMatches(err, test.text))
		})
	}
}

func TestOpenTruncated(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		im.AddNotes(im.RawNote("GNU\x00", 1, nil, 4))
		b := im.Bytes()
		for size := range b {
			f, err := New(bytes.NewReader(b[:size]))
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

func TestOpenErrorsOfTheReaderAreNotTruncation(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.RawNote("GNU\x00", 1, nil, 4))
	b := im.Bytes()
	sections := int64(im.Order.Uint64(b[40:]))
	for _, limit := range []int64{0, sections, sections + 64} {
		_, err := New(failingReader{b, limit})
		qt.Assert(t, qt.ErrorIs(err, errFailing))
		qt.Assert(t, qt.IsFalse(errors.Is(err, ErrTruncated)))
	}
}

func TestSegment(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		const bssAddress = 0x90000 // a segment of which nothing is in the file
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_LOAD,
			Flags: elf.PF_R | elf.PF_W, Address: bssAddress, BSS: 0x100})
		f := im.open(t)
		for _, test := range []struct{ address, want uint64 }{
			{codeAddress, codeOffset},
			{codeAddress + codeSize - 1, codeOffset + codeSize - 1},
			{dataAddress + 1, dataOffset + 1},
		} {
			got := f.Segment(test.address, 1, 0)
			qt.Assert(t, qt.IsNotNil(got))
			qt.Assert(t, qt.Equals(test.address-got.Address+got.Offset, test.want))
		}
		for _, address := range []uint64{0, codeAddress - 1, codeAddress + codeSize,
			dataAddress + dataSize, bssAddress, bssAddress + 1, 1<<64 - 1} {
			qt.Assert(t, qt.IsNil(f.Segment(address, 1, 0)))
		}
	})
}

func TestEveryMachineWithANameHasRelocations(t *testing.T) {
	for machine := range machineNames {
		qt.Check(t, qt.Not(qt.Equals(addressRelocations[machine], [2]uint32{})),
			qt.Commentf("%s", machine))
	}
}
