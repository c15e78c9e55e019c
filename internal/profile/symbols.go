// SPDX-License-Identifier: BSD-2-Clause

package profile

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
)

// maxSymbolBytes bounds the symbol table that is read of a file, which is a stranger's. A browser with debug information
// has some 50 MB of symbols.
const maxSymbolBytes = 256 << 20

// symbols are the functions of a file by address.
type symbols struct {
	segments  []elfnote.Segment
	functions []elf.Symbol
}

// function returns the name of the function at an offset in the file, and the offset where it begins.
func (f *file) function(offset uint64) (name string, start uint64, ok bool) {
	if f.symbols == nil {
		if f.elf == nil {
			return "", 0, false
		}
		f.symbols = readSymbols(f.elf)
	}
	for _, s := range f.symbols.segments {
		if s.Offset <= offset && offset-s.Offset < s.FileSize {
			function := f.symbols.at(s.Address + (offset - s.Offset))
			if function == nil {
				return "", 0, false
			}
			return function.Name, function.Value - s.Address + s.Offset, true
		}
	}
	return "", 0, false
}

// at returns the function at an address, nil if there is none.
func (s *symbols) at(address uint64) *elf.Symbol {
	next, found := slices.BinarySearchFunc(s.functions, address, func(f elf.Symbol, address uint64) int {
		return cmp.Compare(f.Value, address)
	})
	if !found {
		next--
	}
	// Hand-written functions often have no size: only their first byte is surely theirs.
	if next < 0 || address-s.functions[next].Value >= max(s.functions[next].Size, 1) {
		return nil
	}
	return &s.functions[next]
}

// readSymbols reads the symbol tables of a file and of its separate debug file, if that is installed.
func readSymbols(file *elfnote.File) *symbols {
	s := &symbols{segments: slices.Collect(file.Segments())}
	s.read(file)
	if debug, err := file.OpenDebugFile(""); err == nil {
		s.read(debug)
		debug.Close()
	}
	// Of several names for a function the first one in the file stays.
	slices.SortStableFunc(s.functions, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	s.functions = slices.CompactFunc(s.functions, func(a, b elf.Symbol) bool { return a.Value == b.Value })
	return s
}

func (s *symbols) read(file *elfnote.File) {
	// debug/elf is made for files that one trusts: what a damaged one does to it is to have no names.
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
		for _, symbol := range all {
			if isFunction(symbol) && symbol.Section != elf.SHN_UNDEF {
				s.functions = append(s.functions, symbol)
			}
		}
	}
}

func isFunction(s elf.Symbol) bool {
	kind := elf.ST_TYPE(s.Info)
	return kind == elf.STT_FUNC || kind == elf.STT_GNU_IFUNC
}
