// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestPLTGOT(t *testing.T) {
	const soname, pltgot, null = uint64(elf.DT_SONAME), uint64(elf.DT_PLTGOT), uint64(elf.DT_NULL)
	section := func(im *image) {
		im.Sections = append(im.Sections, elfimage.Section{Name: ".got.plt", Kind: elf.SHT_PROGBITS,
			Address: 0x5000})
	}
	symbol := func(im *image) {
		im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("_GLOBAL_OFFSET_TABLE_", 0x6000,
			elf.STT_OBJECT, 1))
	}
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   uint64
		err    error
	}{
		{"from the dynamic section", func(im *image) {
			im.AddDynamic(soname, 1, pltgot, 0x4000,
				null, 0)
			section(im)
			symbol(im)
		}, 0x4000, nil},
		{"dynamic section that is full", func(im *image) {
			im.AddDynamic(soname, 1, pltgot,
				0x4000)
		}, 0x4000, nil},
		{"nothing counts after the end", func(im *image) {
			im.AddDynamic(soname, 1, null, 0, pltgot,
				0x4000)
		}, 0, ErrNoPLTGOT},
		{"from the symbol", func(im *image) { section(im); symbol(im) }, 0x6000, nil},
		{"from the section", section, 0x5000, nil},
		{"from the section, beside a dynamic section", func(im *image) {
			im.AddDynamic(soname, 1,
				null, 0)
			section(im)
		}, 0x5000, nil},
		{"dynamic segment of a debug file means nothing", func(im *image) {
			im.Sections[0].Kind = elf.SHT_NOBITS
			im.AddDynamic(pltgot, 0x4000)
			section(im)
		}, 0x5000, nil},
		{"nowhere", func(im *image) {}, 0, ErrNoPLTGOT},
		{"dynamic section past the end", func(im *image) {
			im.AddDynamic(pltgot, 0x4000)
			im.Segments[2].Offset = elfimage.Ptr[uint64](1 << 30)
		}, 0, ErrTruncated},
		{"large dynamic section", func(im *image) {
			im.AddDynamic(pltgot, 0x4000)
			im.Segments[2].Size = elfimage.Ptr[uint64](maxDynamicBytes + 1)
		}, 0, ErrTooLarge},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				test.change(im)
				got, err := im.open(t).GOTSymbol()
				qt.Assert(t, qt.ErrorIs(err, test.err))
				qt.Assert(t, qt.Equals(got.Value, test.want))
			})
		})
	}
}

func TestIsProgram(t *testing.T) {
	const flags, soname = uint64(elf.DT_FLAGS_1), uint64(elf.DT_SONAME)
	const marked, now = uint64(elf.DF_1_PIE) | uint64(elf.DF_1_NOW), uint64(elf.DF_1_NOW)
	interpreted := func(im *image) {
		im.Segments = append(im.Segments, elfimage.Segment{Kind: elf.PT_INTERP,
			Data: []byte("/lib/ld.so\x00")})
	}
	for _, test := range []struct {
		name   string
		kind   elf.Type
		change func(im *image)
		want   bool
	}{
		{"executable", elf.ET_EXEC, func(im *image) {}, true},
		{"object file", elf.ET_REL, func(im *image) { im.AddDynamic(flags, marked) }, false},
		{"library", elf.ET_DYN, func(im *image) { im.AddDynamic(soname, 1, flags, now) }, false},
		{"library without anything", elf.ET_DYN, func(im *image) {}, false},
		{"position-independent program", elf.ET_DYN, func(im *image) {
			im.AddDynamic(flags,
				marked)
			interpreted(im)
		}, true},
		{"static one", elf.ET_DYN, func(im *image) { im.AddDynamic(flags, marked) }, true},
		{"one by an old linker", elf.ET_DYN, func(im *image) {
			im.AddDynamic(flags,
				now)
			interpreted(im)
		}, true},
		{"library that can be run", elf.ET_DYN, func(im *image) {
			im.AddDynamic(soname,
				1)
			interpreted(im)
		}, false},
		{"debug file", elf.ET_DYN, func(im *image) {
			im.Sections[0].Kind = elf.SHT_NOBITS
			im.AddDynamic(flags, marked)
		}, false},
		{"unreadable", elf.ET_DYN, func(im *image) {
			im.AddDynamic(flags, marked)
			im.Segments[2].Offset = elfimage.Ptr[uint64](1 << 30)
			interpreted(im)
		}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				im.Type = test.kind
				test.change(im)
				f := im.open(t)
				qt.Check(t, qt.Equals(f.IsProgram(), test.want))
				qt.Check(t, qt.Equals(f.IsProgram(), test.want)) // is remembered
			})
		})
	}
}
