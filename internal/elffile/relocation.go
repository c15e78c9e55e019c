// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "debug/elf"

// A Relocation is a place in a section of an object file where a linker stores
// an address: the value of a symbol plus an addend. The addend is in the
// relocation or, on some machines, in the section.
type Relocation struct {
	value   uint64 // with the addend, if that is not in the section
	inPlace bool   // the addend is in the section
	isKnown bool   // it stores an address as it is
}

// Address returns the address that a linker would store, where the section has
// the number stored. ok is false if it stores none.
func (r Relocation) Address(w Words, stored uint64) (address uint64, ok bool) {
	if r.inPlace {
		return w.Moved(r.value, stored), r.isKnown
	}
	return r.value, r.isKnown
}

// addressRelocations are the types of relocations that store an address as it
// is: in ELF32, and in ELF64.
var addressRelocations = map[elf.Machine][2]uint32{
	elf.EM_X86_64:    {uint32(elf.R_X86_64_32), uint32(elf.R_X86_64_64)},
	elf.EM_AARCH64:   {uint32(elf.R_AARCH64_ABS32), uint32(elf.R_AARCH64_ABS64)},
	elf.EM_S390:      {uint32(elf.R_390_32), uint32(elf.R_390_64)},
	elf.EM_PPC64:     {uint32(elf.R_PPC64_ADDR32), uint32(elf.R_PPC64_ADDR64)},
	elf.EM_RISCV:     {uint32(elf.R_RISCV_32), uint32(elf.R_RISCV_64)},
	elf.EM_386:       {uint32(elf.R_386_32)},
	elf.EM_ARM:       {uint32(elf.R_ARM_ABS32)},
	elf.EM_LOONGARCH: {uint32(elf.R_LARCH_32), uint32(elf.R_LARCH_64)},
}

// Relocations returns the relocations of one of ProbeNotes by their offsets in
// it, as if all sections were at address 0. It is empty if they are of another
// form than the machine's. It reads at most left relocations, and takes them
// off left.
func (f *File) Relocations(s Section, left *int) map[uint64]Relocation {
	section, symbols, word := f.relocations[s.number], f.SymbolTables[0], f.Words.Size()
	wanted, symbolSize := addressRelocations[f.Machine][0], symbolSize32
	if f.Words.Wide {
		wanted, symbolSize = addressRelocations[f.Machine][1], symbolSize64
	}
	inPlace, size := section.Kind == elf.SHT_REL, 2*word
	if !inPlace {
		size += word
	}
	if wanted == 0 || symbols.record != uint64(symbolSize) || section.record != uint64(size) ||
		(symbols.Flags|section.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	entries := table{section.Offset, size, section.Size / uint64(size)}
	w := newWindow(f)
	defer w.close()
	all := make(map[uint64]Relocation)
	var last, value uint64 // symbol (number 0 means none), and its value
	for i := uint64(0); i < entries.count && *left > 0; i++ {
		*left--
		b, err := w.record(entries, i)
		if err != nil {
			break
		}
		at := f.Words.Address(b)
		if _, twice := all[at]; twice {
			continue
		}
		symbol, kind := uint64(f.Words.Uint32(b[4:])>>8), f.Words.Uint32(b[4:])&0xff
		if f.Words.Wide {
			symbol, kind = f.Words.Uint64(b[8:])>>32, uint32(f.Words.Uint64(b[8:]))
		}
		r := Relocation{inPlace: inPlace, isKnown: kind == wanted}
		if r.isKnown && symbol != last {
			last = symbol
			if value, r.isKnown = f.symbolValue(symbol); !r.isKnown {
				last = 0
			}
		}
		if r.value = value; !inPlace {
			r.value = f.Words.Moved(value, f.Words.Address(b[2*word:]))
		}
		all[at] = r
	}
	return all
}

// symbolValue returns the value of a symbol of .symtab, and reports whether it
// could be read.
func (f *File) symbolValue(symbol uint64) (value uint64, ok bool) {
	size, word := f.SymbolTables[0].record, f.Words.Size()
	var buffer [symbolSize64]byte
	if symbol >= f.SymbolTables[0].Size/size ||
		f.ReadFull(buffer[:size], f.SymbolTables[0].Offset+symbol*size) != nil {
		return 0, false
	}
	return f.Words.Address(buffer[word:]), true // after the name and what fills its word
}
