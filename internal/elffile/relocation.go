// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "debug/elf"

// Relocator computes the addresses that a linker would store in a section of an
// object file, if all sections were at address 0. An address is the value of a
// symbol plus an addend. The addend is in the relocation or, on some machines,
// in the section.
type Relocator struct {
	window  *window
	entries table  // the relocations
	inPlace bool   // addends are in the section (SHT_REL)
	next    uint64 // index of the next relocation
	kind    uint32 // type of a relocation that stores an address as it is
	left    int    // how many relocations may still be read

	symbols table
	symbol  uint64 // the last one that was read, and its value
	value   uint64
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

// NewRelocator returns the Relocator of a section of ProbeNotes, nil if the
// section has no relocations that are understood. It reads at most left
// relocations. It must be closed.
func (f *File) NewRelocator(s Section, left int) *Relocator {
	relocations, ok := f.relocations[s.number]
	kinds, known := addressRelocations[f.Machine]
	entry, symbolSize, kind := uint64(12), symbolSize32, kinds[0]
	if f.Words.Wide {
		entry, symbolSize, kind = 24, symbolSize64, kinds[1]
	}
	if relocations.Kind == elf.SHT_REL {
		entry = entry / 3 * 2
	}
	symbols := f.symbols.static
	if !ok || !known || kind == 0 || relocations.record != entry ||
		symbols.record != uint64(symbolSize) ||
		(relocations.Flags|symbols.Flags)&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	return &Relocator{
		window:  newWindow(f),
		entries: table{relocations.Offset, int(entry), relocations.Size / entry},
		inPlace: relocations.Kind == elf.SHT_REL,
		kind:    kind,
		left:    left,
		symbols: table{symbols.Offset, symbolSize, symbols.Size / uint64(symbolSize)},
	}
}

// Close frees the Relocator's buffer. It returns how many relocations may still
// be read.
func (r *Relocator) Close() (left int) {
	r.window.close()
	return r.left
}

// Value returns the address that a linker would store at an offset of the
// section, which now has the number stored. ok is false if no relocation stores
// one there. Offsets must be asked for in ascending order, which is that of the
// relocations.
func (r *Relocator) Value(offset, stored uint64) (value uint64, ok bool) {
	w := r.window.file.Words
	for ; r.next < r.entries.count; r.next++ {
		if r.left == 0 {
			return 0, false
		}
		r.left--
		b, err := r.window.record(r.entries, r.next)
		if err != nil {
			return 0, false
		}
		switch at := w.Address(b); {
		case at > offset:
			return 0, false
		case at < offset:
			continue
		}
		r.next++
		symbol, kind := uint64(w.Uint32(b[4:])>>8), w.Uint32(b[4:])&0xff
		if w.Wide {
			symbol, kind = w.Uint64(b[8:])>>32, uint32(w.Uint64(b[8:]))
		}
		addend := stored
		if !r.inPlace {
			addend = w.Address(b[2*w.Size():])
		}
		if kind != r.kind || !r.read(symbol) {
			return 0, false
		}
		return w.Moved(r.value, addend), true
	}
	return 0, false
}

// read sets value to that of a symbol, and reports whether it could.
func (r *Relocator) read(symbol uint64) bool {
	if symbol == r.symbol {
		return true // also for number 0, which means no symbol
	}
	if symbol >= r.symbols.count {
		return false
	}
	f := r.window.file
	var buffer [symbolSize64]byte
	b := buffer[:r.symbols.size]
	if f.ReadFull(b, r.symbols.offset+symbol*uint64(r.symbols.size)) != nil {
		return false
	}
	r.symbol, r.value = symbol, uint64(f.Words.Uint32(b[4:]))
	if f.Words.Wide {
		r.value = f.Words.Uint64(b[8:])
	}
	return true
}
