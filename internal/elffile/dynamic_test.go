// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/elf"
	"strings"
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
				got, err := im.open(t).PLTGOT()
				qt.Assert(t, qt.ErrorIs(err, test.err))
				qt.Assert(t, qt.Equals(got, test.want))
			})
		})
	}
}

func TestInterpreter(t *testing.T) {
	for _, test := range []struct{ name, data, want string }{
		{"none", "", ""},
		{"path", "/lib/ld.so\x00", "/lib/ld.so"},
		{"without an end", "/lib/ld.so", "/lib/ld.so"},
		{"too long", strings.Repeat("x", maxInterpreter+1), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			im.Segments = append(im.Segments,
				elfimage.Segment{Kind: elf.PT_INTERP, Data: []byte(test.data)})
			qt.Check(t, qt.Equals(im.open(t).Interpreter(), test.want))
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

func TestDynamicStrings(t *testing.T) {
	const needed, null = uint64(elf.DT_NEEDED), uint64(elf.DT_NULL)
	const table, size = uint64(elf.DT_STRTAB), uint64(elf.DT_STRSZ)
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   []string
		err    error
		text   string
	}{
		{"two libraries", func(im *image) {
			im.AddDynamic(needed, 1, table, dataAddress, needed, 9, size, 16, null, 0, needed, 1)
		}, []string{"libc.so", "two"}, nil, ""},
		{"one that ends another", func(im *image) {
			im.AddDynamic(needed, 4, table, dataAddress,
				size, 16)
		}, []string{"c.so"}, nil, ""},
		{"none", func(im *image) { im.AddDynamic(table, dataAddress, size, 16, null, 0) }, nil, nil,
			""},
		{"no dynamic section", func(im *image) {}, nil, nil, ""},
		{"debug file", func(im *image) {
			im.Sections[0].Kind = elf.SHT_NOBITS
			im.AddDynamic(needed, 1, table, dataAddress, size, 16)
		}, nil, nil, ""},
		{"no strings", func(im *image) { im.AddDynamic(needed, 1) }, nil, ErrNotMapped,
			"strings of the dynamic section: .*"},
		{"strings that are not in the file", func(im *image) {
			im.AddDynamic(needed, 1, table,
				dataAddress+dataSize, size, 16)
		}, nil, ErrNotMapped, ".*"},
		{"behind the strings", func(im *image) {
			im.AddDynamic(needed, 16, table, dataAddress, size,
				16)
		}, nil, ErrMalformed, "DT_NEEDED at 16 of 16 bytes of strings: .*"},
		{"without an end", func(im *image) {
			im.AddDynamic(needed, 9, table, dataAddress, size,
				11)
		}, nil, ErrTruncated, "DT_NEEDED: .*"},
		{"long", func(im *image) {
			im.Segments[1].Data = bytes.Repeat([]byte("n"), maxDynamicString+2)
			im.AddDynamic(needed, 0, table, dataAddress, size, 1<<20)
		}, nil, ErrTooLarge, "DT_NEEDED of more than 4096 bytes: .*"},
		{"many", func(im *image) {
			words := []uint64{table, dataAddress, size, 16}
			for range maxDynamicStrings + 1 {
				words = append(words, needed, 1)
			}
			im.AddDynamic(words...)
		}, nil, ErrTooLarge, "more than 4096 entries of DT_NEEDED: .*"},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				im.Segments[1].Data = []byte("\x00libc.so\x00two\x00zzzz" +
					string(make([]byte, dataSize-16)))[:dataSize]
				im.Page = 0x2000
				test.change(im)
				got, err := im.open(t).DynamicStrings(elf.DT_NEEDED)
				qt.Assert(t, qt.ErrorIs(err, test.err))
				if err != nil {
					qt.Check(t, qt.ErrorMatches(err, test.text))
				}
				qt.Check(t, qt.DeepEquals(got, test.want))
			})
		})
	}
}
