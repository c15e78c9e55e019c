// SPDX-License-Identifier: BSD-2-Clause

package libbpf

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"strings"
)

// cilium/ebpf takes the sizes and counts of an object as they are, and copies
// what they claim. Here they are checked first, so that an object of some
// kilobytes does not take gigabytes of memory.
const (
	// maxZeroes bounds the sections of zeroes that are in no file, such as
	// .bss, together. They are held in memory.
	maxZeroes = 256 << 20

	// maxNames bounds the names of all sections, symbols and types together.
	// Each use of a name is a copy, and long ones can be used by many.
	maxNames = 64 << 20

	// maxOverlap bounds the symbols of a section: their sizes together are at
	// most this many times that of the section. Each is copied. Symbols of
	// compilers overlap only where a function has a second name.
	maxOverlap = 4

	// maxTypes bounds the types of .BTF. A chain of them is read by a recursion
	// that takes 2.5 kB of stack for each. All that a kernel's struct
	// task_struct leads to is some 10,000.
	maxTypes = 50_000
)

var errNames = fmt.Errorf(
	"the names of its sections, symbols and types are more than %d MB together", maxNames>>20)

// check returns an error if the object claims to be larger than it is, or would
// have cilium/ebpf allocate far more. Compressed sections for debuggers are
// taken out: nothing reads them.
func (img *image) check() error {
	names := nameBudget{maxNames}
	table, err := img.contents(int(img.header.Shstrndx))
	if err != nil {
		return err
	}
	inFile, zeroes := uint64(0), uint64(0)
	for i := range img.sections {
		section := &img.sections[i]
		if !names.take(table, section.Name) {
			return errNames
		}
		name := stringAt(table, section.Name)
		if section.Flags&uint64(elf.SHF_COMPRESSED) != 0 {
			if !strings.HasPrefix(name, ".debug_") {
				return fmt.Errorf("section %.100q is compressed", name)
			}
			*section = elf.Section64{Name: section.Name}
		}
		if elf.SectionType(section.Type) == elf.SHT_NOBITS {
			if zeroes += min(section.Size, maxZeroes+1); zeroes > maxZeroes {
				return fmt.Errorf("section %.100q: more than %d MB of zeroes", name, maxZeroes>>20)
			}
			continue
		}
		if _, err := img.contents(i); err != nil {
			return fmt.Errorf("section %.100q: %w", name, err)
		}
		if inFile += section.Size; inFile > uint64(len(img.data)) {
			return errors.New("its sections overlap")
		}
	}
	if err := img.checkSymbols(&names); err != nil {
		return err
	}
	for i := range img.sections {
		if stringAt(table, img.sections[i].Name) == ".BTF" {
			if err := img.checkTypes(i, &names); err != nil {
				return fmt.Errorf("section .BTF: %w", err)
			}
		}
	}
	return nil
}

// nameBudget is how many bytes of names may still come.
type nameBudget struct{ left int }

// take reports whether the budget has room for the name at an offset of a
// string table.
func (b *nameBudget) take(table []byte, offset uint32) bool {
	if uint64(offset) < uint64(len(table)) {
		name := table[offset:]
		size := bytes.IndexByte(name[:min(len(name), b.left+1)], 0)
		if size < 0 {
			size = min(len(name), b.left+1)
		}
		b.left -= size
	}
	return b.left >= 0
}

// checkSymbols checks the names of all symbols, and the sizes of those of each
// section.
func (img *image) checkSymbols(names *nameBudget) error {
	symbols, err := readSymbols(img)
	if err != nil {
		return err
	}
	sizes := make([]uint64, len(img.sections))
	for i := range symbols.list {
		symbol := &symbols.list[i]
		if !names.take(symbols.names, symbol.Name) {
			return errNames
		}
		section := int(symbol.Shndx)
		if section == int(elf.SHN_UNDEF) || section >= len(img.sections) {
			continue
		}
		room := img.sections[section].Size
		if symbol.Size > room {
			return fmt.Errorf("symbol %.100q is larger than its section",
				stringAt(symbols.names, symbol.Name))
		}
		if sizes[section] += symbol.Size; sizes[section]/maxOverlap > room {
			return fmt.Errorf("the symbols of section %d overlap", section)
		}
	}
	return nil
}

// checkTypes checks the number of types, their names, and the sections that
// they describe. What is malformed is left to cilium/ebpf.
func (img *image) checkTypes(section int, names *nameBudget) error {
	const (
		headerSize, typeSize = 24, 12
		datasec              = 15
	)
	b, err := img.contents(section)
	if err != nil || len(b) < headerSize {
		return err
	}
	word := func(b []byte) uint64 { return uint64(img.order.Uint32(b)) }
	part := func(offset, size uint64) []byte {
		offset += word(b[4:]) // the size of the header
		if offset > uint64(len(b)) || size > uint64(len(b))-offset {
			return nil
		}
		return b[offset : offset+size]
	}
	types, texts := part(word(b[8:]), word(b[12:])), part(word(b[16:]), word(b[20:]))
	for count := 0; len(types) >= typeSize; count++ {
		info := img.order.Uint32(types[4:])
		kind, members := info>>24&0x1f, int(info&0xffff)
		switch {
		case count == maxTypes:
			return fmt.Errorf("more than %d types", maxTypes)
		case kind == datasec && word(types[8:]) > maxZeroes:
			return fmt.Errorf("a section of %d bytes", word(types[8:]))
		case !names.take(texts, img.order.Uint32(types)):
			return errNames
		}
		types = types[typeSize:]
		record, ok := btfRecords[kind]
		if !ok {
			return nil
		}
		if !record.many {
			members = 1
		}
		if members*record.size > len(types) {
			return nil
		}
		for at := 0; record.named && at < members; at++ {
			if !names.take(texts, img.order.Uint32(types[at*record.size:])) {
				return errNames
			}
		}
		types = types[members*record.size:]
	}
	return nil
}

// btfRecords are the records after a type, by its kind: one record, or one for
// each member, which may begin with a name. Pointers, forward declarations,
// typedefs, qualifiers, functions, floats and tags of types have none.
var btfRecords = map[uint32]struct {
	size        int
	many, named bool
}{
	2: {}, 7: {}, 8: {}, 9: {}, 10: {}, 11: {}, 12: {}, 16: {}, 18: {},
	1:  {size: 4},                           // integer
	3:  {size: 12},                          // array
	4:  {size: 12, many: true, named: true}, // structure
	5:  {size: 12, many: true, named: true}, // union
	6:  {size: 8, many: true, named: true},  // enumeration
	13: {size: 8, many: true, named: true},  // parameters of a function
	14: {size: 4},                           // variable
	15: {size: 12, many: true},              // section of data
	17: {size: 4},                           // tag of a declaration
	19: {size: 12, many: true, named: true}, // enumeration of 64 bits
}
