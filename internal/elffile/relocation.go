// SPDX-License-Identifier: BSD-2-Clause

package elffile

import "debug/elf"

// Relocator computes the addresses that a linker would store in a section of an
// object file, if all sections were at address 0. An address is the value of a
// symbol plus an addend. The addend is in the relocation or, on some machines,
// in the section.
type Relocator struct {
	window  *window
	entries table  // the relocations of the section
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

// NewRelocator returns a Relocator for the sections of ProbeNotes, nil if the
// file has no relocations that are understood. It reads at most left
// relocations. It must be closed.
func (f *File) NewRelocator(left int) *Relocator {
	kind, size := addressRelocations[f.Machine][0], symbolSize32
	if f.Words.Wide {
		kind, size = addressRelocations[f.Machine][1], symbolSize64
	}
	symbols := f.symbols.static
	if kind == 0 || symbols.record != uint64(size) || symbols.Flags&elf.SHF_COMPRESSED != 0 {
		return nil
	}
	return &Relocator{window: newWindow(f), kind: kind, left: left,
		symbols: table{symbols.Offset, size, symbols.Size / uint64(size)}}
}

// Start begins with a section. Its relocations are ignored if they are of
// another form than the machine's.
func (r *Relocator) Start(s Section) {
	relocations := r.window.file.relocations[s.number]
	size := 2 * r.window.file.Words.Size()
	if r.inPlace = relocations.Kind == elf.SHT_REL; !r.inPlace {
		size = size / 2 * 3
	}
	r.entries, r.next = table{}, 0
	if relocations.record == uint64(size) && relocations.Flags&elf.SHF_COMPRESSED == 0 {
		r.entries = table{relocations.Offset, size, relocations.Size / uint64(size)}
	}
}

// Close frees the Relocator's buffer.
func (r *Relocator) Close() { r.window.close() }

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
