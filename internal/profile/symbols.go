// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
)

// maxSymbolBytes bounds the symbol table that is read of a file, which is a
// stranger's. A browser with debug information has some 50 MB of symbols.
const maxSymbolBytes = 256 << 20

// symbols are the functions of a file by address.
type symbols struct {
	functions []symbol
	size      int // in memory, in bytes
}

type symbol struct {
	name        string
	value, size uint64
}

// symbolSize is what a symbol takes besides its name.
const symbolSize = 32

// function returns the name of the function at an offset in the file, and the
// offset where it begins.
func (f *file) function(offset uint64) (name string, start uint64, ok bool) {
	f.readSymbols()
	for _, s := range f.segments {
		if s.Offset <= offset && offset-s.Offset < s.FileSize {
			function := f.symbols.at(s.Address + (offset - s.Offset))
			if function == nil {
				return "", 0, false
			}
			return function.name, function.value - s.Address + s.Offset, true
		}
	}
	return "", 0, false
}

// at returns the function at an address, nil if there is none.
func (s *symbols) at(address uint64) *symbol {
	next, found := slices.BinarySearchFunc(s.functions, address, func(f symbol, address uint64) int {
		return cmp.Compare(f.value, address)
	})
	if !found {
		next--
	}
	// Hand-written functions often have no size: only their first byte is
	// surely theirs.
	if next < 0 || address-s.functions[next].value >= max(s.functions[next].size, 1) {
		return nil
	}
	return &s.functions[next]
}

// readSymbols reads the symbol tables of the file and of its separate debug
// file, if that is installed.
func (f *file) readSymbols() {
	if f.symbols != nil {
		return
	}
	s := &symbols{}
	f.symbols = s
	if f.elf == nil {
		return
	}
	s.read(f.elf)
	if debug, err := f.elf.OpenDebugFile(""); err == nil {
		s.read(debug)
		debug.Close()
	}
	// Of several names for a function the first one in the file stays.
	slices.SortStableFunc(s.functions, func(a, b symbol) int { return cmp.Compare(a.value, b.value) })
	s.functions = slices.Clip(slices.CompactFunc(s.functions, func(a, b symbol) bool { return a.value == b.value }))
	for _, f := range s.functions {
		s.size += symbolSize + len(f.name)
	}
}

func (s *symbols) read(file *elfnote.File) {
	// debug/elf is made for files that one trusts: what a damaged one does to
	// it is to have no names.
	defer func() { _ = recover() }()
	tables, err := elf.NewFile(file)
	if err != nil {
		return
	}
	for _, section := range tables.Sections {
		isTable := section.Type == elf.SHT_SYMTAB || section.Type == elf.SHT_DYNSYM || section.Type == elf.SHT_STRTAB
		if isTable && section.Size > maxSymbolBytes {
			return
		}
	}
	for _, table := range []func() ([]elf.Symbol, error){tables.Symbols, tables.DynamicSymbols} {
		all, err := table()
		if err != nil {
			continue // there is none
		}
		for _, found := range all {
			if isFunction(found) && found.Section != elf.SHN_UNDEF {
				s.functions = append(s.functions, symbol{found.Name, found.Value + file.Moved(), found.Size})
			}
		}
	}
}

func isFunction(s elf.Symbol) bool {
	kind := elf.ST_TYPE(s.Info)
	return kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
}
