// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"math/bits"
	"slices"
)

// symbolSearch looks names up in one symbol table. It finds them in the string
// table first, so that no name of any other symbol need be read: both tables
// are read once, through a buffer.
type symbolSearch struct {
	file  *File
	names []string
	found []foundSymbol // for each name

	numbers map[string]int32 // of names
	lengths []int            // of names, each one once, in ascending order
	last    [256]bool        // the bytes that a name ends with
	places  []namePlace
}

// foundSymbol is what a symbol table has of a name.
type foundSymbol struct {
	symbol
	defined, ambiguous bool
}

// namePlace is where a name is in the string table. There are several where
// strings end in it.
type namePlace struct {
	offset uint32 // from the start of the table, as symbols have it
	name   int32
}

// The sizes of a symbol.
const (
	symbolSize32 = 16
	symbolSize64 = 24
)

// search searches a symbol table.
func (s *symbolSearch) search(table Section) error {
	size, strings, err := s.file.symbolTable(table)
	if err != nil || size == 0 {
		return err
	}
	if err := s.charge(workOfName, uint64(len(s.names))); err != nil {
		return err
	}

	buffer := NewBuffer()
	defer buffer.Free()
	if err := s.findNames(strings, buffer); err != nil {
		return fmt.Errorf("symbol names: %w", err)
	}
	if len(s.places) == 0 {
		return nil
	}
	if err := s.findDefinitions(table, size, buffer); err != nil {
		return fmt.Errorf("symbol table: %w", err)
	}
	return nil
}

// symbolTable returns the size of a symbol, which is 0 if there is no table,
// and the section of the symbols' names.
func (f *File) symbolTable(table Section) (size uint64, strings Section, err error) {
	size = symbolSize32
	if f.Words.Wide {
		size = symbolSize64
	}
	if table.Kind == elf.SHT_NULL || table.Size < size {
		return 0, Section{}, nil
	}
	if table.record != size || table.Offset+table.Size < table.Offset {
		return 0, Section{}, fmt.Errorf("symbol table: %w", ErrMalformed)
	}
	if strings, err = f.linkedSection(table); err != nil {
		return 0, Section{}, err
	}
	if (table.Flags|strings.Flags)&elf.SHF_COMPRESSED != 0 {
		return 0, Section{}, fmt.Errorf("symbol table: %w", ErrCompressed)
	}
	return size, strings, nil
}

// linkedSection returns the section that another one refers to.
func (f *File) linkedSection(s Section) (Section, error) {
	if uint64(s.link) >= f.sections.count {
		return Section{}, fmt.Errorf("symbol names in section %d of %d: %w", s.link,
			f.sections.count, ErrMalformed)
	}
	b := make([]byte, f.sections.size)
	if err := f.ReadFull(b, f.sections.offset+uint64(s.link)*uint64(f.sections.size)); err != nil {
		return Section{}, fmt.Errorf("section header %d: %w", s.link, err)
	}
	return decodeSection(f.Words, b), nil
}

// charge adds to the file's account what a number of steps take, or fails.
// Sizes that a file claims to have are charged before anything is read.
func (s *symbolSearch) charge(work, steps uint64) error {
	left := maxSymbolWork - s.file.symbols.work
	if steps > left/work {
		return fmt.Errorf("work of all look-ups together: %w", ErrTooLarge)
	}
	s.file.symbols.work += work * steps
	return nil
}

// findNames finds the places of a string table at which names start.
func (s *symbolSearch) findNames(table Section, buffer *Buffer) error {
	if table.Kind == elf.SHT_NOBITS {
		return nil
	}
	if err := s.charge(1, table.Size); err != nil {
		return err
	}
	s.numbers = make(map[string]int32, len(s.names))
	for i, name := range s.names {
		s.numbers[name] = int32(i)
		s.last[name[len(name)-1]] = true
		if n, ok := slices.BinarySearch(s.lengths, len(name)); !ok {
			s.lengths = slices.Insert(s.lengths, n, len(name))
		}
	}
	longest := s.lengths[len(s.lengths)-1]

	kept := 0 // bytes at the start of buffer that are from before: of a string that is not complete
	for at := uint64(0); at < table.Size; {
		b := buffer[:kept+int(min(uint64(len(buffer)-kept), table.Size-at))]
		if err := s.file.ReadFull(b[kept:], table.Offset+at); err != nil {
			return err
		}
		start := at - uint64(kept)
		at += uint64(len(b) - kept)

		from, ends := 0, uint64(0)
		for {
			length := bytes.IndexByte(b[from:], 0)
			if length < 0 {
				break
			}
			ends++
			if length > 0 && s.last[b[from+length-1]] {
				if err := s.endsIn(b[from:from+length], start+uint64(from+length)); err != nil {
					return err
				}
			}
			from += length + 1
		}
		if err := s.charge(workOfString, ends); err != nil {
			return err
		}
		kept = copy(buffer[:], b[max(from, len(b)-longest):])
	}
	return nil
}

// endsIn notes the names that a string of the string table ends in.
func (s *symbolSearch) endsIn(text []byte, end uint64) error {
	var probes, hashed uint64
	for _, length := range s.lengths {
		if length > len(text) {
			break
		}
		probes++
		hashed += uint64(length)
		name, ok := s.numbers[string(text[len(text)-length:])]
		offset := end - uint64(length)
		if !ok || offset > maxSymbolOffset {
			continue
		}
		if len(s.places) == maxSymbolNames {
			return ErrTooLarge
		}
		s.places = append(s.places, namePlace{uint32(offset), name})
	}
	if err := s.charge(workOfProbe, probes); err != nil {
		return err
	}
	return s.charge(1, hashed)
}

// findDefinitions goes through the symbol table for symbols that have their
// name at one of the places.
func (s *symbolSearch) findDefinitions(table Section, size uint64, buffer *Buffer) error {
	// To find a place takes one step for each time their number can be halved.
	if err := s.charge(2*uint64(bits.Len(uint(len(s.places)))), table.Size); err != nil {
		return err
	}
	slices.SortFunc(s.places, func(a, b namePlace) int { return cmp.Compare(a.offset, b.offset) })
	w := s.file.Words
	whole := buffer[:ChunkSize/size*size]
	for at := uint64(0); table.Size-at >= size; {
		b := whole[:min(uint64(len(whole)), (table.Size-at)/size*size)]
		if err := s.file.ReadFull(b, table.Offset+at); err != nil {
			return err
		}
		at += uint64(len(b))
		for ; len(b) > 0; b = b[size:] {
			i, ok := slices.BinarySearchFunc(s.places, w.Uint32(b),
				func(p namePlace, offset uint32) int { return cmp.Compare(p.offset, offset) })
			if !ok {
				continue
			}
			symbol, ok := s.file.definition(b)
			switch found := &s.found[s.places[i].name]; {
			case !ok:
			case !found.defined:
				found.symbol, found.defined = symbol, true
			case found.value != symbol.value || found.isThreadLocal() != symbol.isThreadLocal():
				found.ambiguous = true
			case elf.ST_BIND(found.info) == elf.STB_LOCAL:
				found.symbol = symbol // others may see this one
			}
		}
	}
	return nil
}

// definition returns a symbol if it defines something that has a place.
func (f *File) definition(b []byte) (s symbol, ok bool) {
	w := f.Words
	if w.Wide {
		s.info, s.other, s.section = b[4], b[5], w.Uint16(b[6:])
		s.value, s.size = w.Uint64(b[8:]), w.Uint64(b[16:])
	} else {
		s.value, s.size = uint64(w.Uint32(b[4:])), uint64(w.Uint32(b[8:]))
		s.info, s.other, s.section = b[12], b[13], w.Uint16(b[14:])
	}
	in := elf.SectionIndex(s.section)
	if in == elf.SHN_UNDEF || in == elf.SHN_COMMON {
		return s, false
	}
	switch elf.ST_TYPE(s.info) {
	case elf.STT_SECTION, elf.STT_FILE:
		return s, false
	case elf.STT_TLS:
		return s, true // is no address, and stays
	}
	if in != elf.SHN_ABS { // which is no place in the file, and stays
		s.value = w.Moved(s.value, f.symbols.moved)
	}
	return s, true
}
