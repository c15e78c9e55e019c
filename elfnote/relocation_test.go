// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// relocation is one of an object file.
type relocation struct {
	offset uint64
	symbol uint32
	kind   elf.R_X86_64
	addend uint64
}

// addRelocations adds relocations of the section that was added last.
func (im *image) addRelocations(relocations ...relocation) {
	var data []byte
	size := uint64(24)
	for _, r := range relocations {
		if im.Wide() {
			data = im.Words(data, r.offset, uint64(r.symbol)<<32|uint64(r.kind), r.addend)
		} else {
			data = im.Words(data, r.offset, uint64(r.symbol)<<8|uint64(r.kind), r.addend)
			size = 12
		}
	}
	im.Sections = append(im.Sections, elfimage.Section{
		Name:   ".rela.note.stapsdt",
		Kind:   elf.SHT_RELA,
		Record: size,
		Data:   data,
		Info:   uint32(len(im.Sections)),
	})
}

func TestSitesOfObjectFilesAreRelocated(t *testing.T) {
	const code, semaphore, none = 1, 2, 99 // symbols
	for _, test := range []struct {
		name string
		// relocations of two notes whose addresses are at the given offsets
		relocations func(first, second, word uint64, address elf.R_X86_64) []relocation
		change      func(im *image)
		want        [2][2]uint64 // location and semaphore
	}{
		{"all", func(first, second, word uint64, address elf.R_X86_64) []relocation {
			return []relocation{
				{first, code, address, 0x10}, {first + word, none, address, 0}, {first + 2*word,
					semaphore, address, 2},
				{second, code, address, 0x20}, {second + word, none, address, 0}, {second + 2*word,
					semaphore, address, 4},
			}
		}, nil, [2][2]uint64{{0x110, 0x202}, {0x120, 0x204}}},
		{"backwards", func(first, second, word uint64, address elf.R_X86_64) []relocation {
			return []relocation{{first, code, address, ^uint64(0)}, {second, 0, address, 0x20}}
		}, nil, [2][2]uint64{{0xff, 7}, {0x20, 7}}},
		{"of the second note alone", func(first, second, word uint64,
			address elf.R_X86_64) []relocation {
			return []relocation{{second, code, address, 1}}
		}, nil, [2][2]uint64{{5, 7}, {0x101, 7}}},
		{"between the addresses", func(first, second, word uint64, address elf.R_X86_64) []relocation {
			return []relocation{{first - 4, code, address, 1}, {first + 2, code, address, 1},
				{second, code, address, 1}}
		}, nil, [2][2]uint64{{5, 7}, {0x101, 7}}},
		{"of another kind", func(first, second, word uint64, address elf.R_X86_64) []relocation {
			return []relocation{{first, code, elf.R_X86_64_PC32, 1}, {second, code, address, 1}}
		}, nil, [2][2]uint64{{5, 7}, {0x101, 7}}},
		{"of a symbol that does not exist", func(first, second, word uint64,
			address elf.R_X86_64) []relocation {
			return []relocation{{first, none, address, 1}, {second, code, address, 1}}
		}, nil, [2][2]uint64{{5, 7}, {0x101, 7}}},
		{"of a symbol table that is not there", func(first, second, word uint64,
			address elf.R_X86_64) []relocation {
			return []relocation{{first, code, address, 1}}
		}, func(im *image) { im.Sections[3].Offset = elfimage.Ptr[uint64](1 << 30) },
			[2][2]uint64{{5, 7}, {5, 7}}},
		{"past the end", func(first, second, word uint64, address elf.R_X86_64) []relocation {
			return []relocation{{first, code, address, 1}}
		}, func(im *image) { im.Sections[2].Offset = elfimage.Ptr[uint64](1 << 30) },
			[2][2]uint64{{5, 7}, {5, 7}}},
		{"of a record of another size", func(first, second, word uint64,
			address elf.R_X86_64) []relocation {
			return []relocation{{first, code, address, 1}}
		}, func(im *image) { im.Sections[2].Record = 8 }, [2][2]uint64{{5, 7}, {5, 7}}},
		{"of a machine without such relocations",
			func(first, second, word uint64, address elf.R_X86_64) []relocation {
				return []relocation{{first, code, address, 1}}
			}, func(im *image) { im.Machine = elf.EM_MIPS }, [2][2]uint64{{5, 7}, {5, 7}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				im.Type, im.Segments = elf.ET_REL, nil
				note := im.note(Site{Location: 5, Semaphore: 7, Provider: "p", Name: "n"})
				im.AddNotes(note, note)
				word, address := uint64(4), elf.R_X86_64_32
				if im.Wide() {
					word, address = 8, elf.R_X86_64_64
				}
				const descriptor = 12 + 8
				im.addRelocations(test.relocations(descriptor, uint64(len(note))+descriptor, word,
					address)...)
				im.AddSymbols(elf.SHT_SYMTAB, "",
					elfimage.NewSymbol("", 0x100, elf.STT_SECTION, 1),
					elfimage.NewSymbol("semaphore", 0x200, elf.STT_OBJECT, 1))
				if test.change != nil {
					test.change(im)
				}
				sites, errs := collect(im.open(t))
				qt.Assert(t, qt.HasLen(errs, 0))
				qt.Assert(t, qt.HasLen(sites, 2))
				for i, site := range sites {
					want := test.want[i]
					if !im.Wide() {
						want[0] = uint64(uint32(want[0]))
					}
					qt.Check(t, qt.Equals([2]uint64{site.Location, site.Semaphore}, want))
				}
			})
		})
	}
}

// The numbers of i386 and arm are in the section.
func TestSitesAreRelocatedInPlace(t *testing.T) {
	for machine, kind := range map[elf.Machine]uint32{elf.EM_386: uint32(elf.R_386_32),
		elf.EM_ARM: uint32(elf.R_ARM_ABS32)} {
		im := newImage(elf.ELFCLASS32, binary.LittleEndian)
		im.Machine, im.Type, im.Segments = machine, elf.ET_REL, nil
		im.AddNotes(im.note(Site{Location: 5, Semaphore: 7, Provider: "p", Name: "n"}),
			im.note(Site{Location: 6, Provider: "p", Name: "m"}))
		const code, semaphore, descriptor = 1, 2, 12 + 8
		data := im.Words(nil, descriptor, code<<8|uint64(kind), descriptor+8,
			semaphore<<8|uint64(kind))
		im.Sections = append(im.Sections, elfimage.Section{
			Name:   ".rel.note.stapsdt",
			Kind:   elf.SHT_REL,
			Record: 8,
			Data:   data,
			Info:   uint32(len(im.Sections)),
		})
		im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("", 0x100, elf.STT_SECTION, 1),
			elfimage.NewSymbol("semaphore", 0x200, elf.STT_OBJECT, 1))
		sites, errs := collect(im.open(t))
		qt.Assert(t, qt.HasLen(errs, 0))
		qt.Assert(t, qt.HasLen(sites, 2))
		qt.Check(t, qt.Equals(sites[0].Location, 0x105))
		qt.Check(t, qt.Equals(sites[0].Semaphore, 0x207))
		qt.Check(t, qt.Equals(sites[1].Location, 6))
	}
}

// An object file of a crafted size is read as far as is worth it.
func TestRelocationsAreBounded(t *testing.T) {
	im := newImage64()
	im.Type, im.Segments = elf.ET_REL, nil
	note := im.note(Site{Provider: "p", Name: "n"})
	im.AddNotes(note, note)
	relocations := make([]relocation, maxRelocations+1)
	relocations[0] = relocation{20, 1, elf.R_X86_64_64, 0x10}
	for i := range relocations[1:] {
		relocations[i+1].offset = 21
	}
	relocations[maxRelocations] = relocation{uint64(len(note)) + 20, 1, elf.R_X86_64_64, 0x20}
	im.addRelocations(relocations...)
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("", 0x100, elf.STT_SECTION, 1))
	sites, _ := collect(im.open(t))
	qt.Assert(t, qt.HasLen(sites, 2))
	qt.Check(t, qt.Equals(sites[0].Location, 0x110))
	qt.Check(t, qt.Equals(sites[1].Location, 0))
}
