// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"
)

// addDynamic adds a dynamic segment with entries of tag and value.
func (im *image) addDynamic(words ...uint64) {
	im.segments = append(im.segments, imageSegment{kind: elf.PT_DYNAMIC, address: dataAddress, data: im.words(nil, words...)})
}

func TestPLTGOT(t *testing.T) {
	const soname, pltgot, null = uint64(elf.DT_SONAME), uint64(elf.DT_PLTGOT), uint64(elf.DT_NULL)
	section := func(im *image) {
		im.sections = append(im.sections, imageSection{name: ".got.plt", kind: elf.SHT_PROGBITS, address: 0x5000})
	}
	symbol := func(im *image) {
		im.addSymbols(elf.SHT_SYMTAB, "", testSymbol{"_GLOBAL_OFFSET_TABLE_", 0x6000, elf.STT_OBJECT, 1})
	}
	for _, test := range []struct {
		name   string
		change func(im *image)
		want   uint64
		err    error
	}{
		{"from the dynamic section", func(im *image) { im.addDynamic(soname, 1, pltgot, 0x4000, null, 0); section(im); symbol(im) }, 0x4000, nil},
		{"dynamic section that is full", func(im *image) { im.addDynamic(soname, 1, pltgot, 0x4000) }, 0x4000, nil},
		{"nothing counts after the end", func(im *image) { im.addDynamic(soname, 1, null, 0, pltgot, 0x4000) }, 0, ErrNoPLTGOT},
		{"from the symbol", func(im *image) { section(im); symbol(im) }, 0x6000, nil},
		{"from the section", section, 0x5000, nil},
		{"from the section, beside a dynamic section", func(im *image) { im.addDynamic(soname, 1, null, 0); section(im) }, 0x5000, nil},
		{"dynamic segment of a debug file means nothing", func(im *image) {
			im.sections[0].kind = elf.SHT_NOBITS
			im.addDynamic(pltgot, 0x4000)
			section(im)
		}, 0x5000, nil},
		{"nowhere", func(im *image) {}, 0, ErrNoPLTGOT},
		{"dynamic section past the end", func(im *image) {
			im.addDynamic(pltgot, 0x4000)
			im.segments[2].offset = ptr[uint64](1 << 30)
		}, 0, ErrTruncated},
		{"large dynamic section", func(im *image) {
			im.addDynamic(pltgot, 0x4000)
			im.segments[2].space = ptr[uint64](maxDynamicBytes + 1)
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
