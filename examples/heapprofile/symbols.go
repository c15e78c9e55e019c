// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"debug/elf"
	"slices"

	"github.com/gousdt/gousdt/elfnote"
)

// symbols are the functions of a file by address.
type symbols struct {
	segments  []elfnote.Segment
	functions []elf.Symbol
}

// function returns the name of the function at an offset in the file, "" if it
// is not known.
func (f *file) function(offset uint64) string {
	s := f.symbols
	if s == nil {
		return ""
	}
	for _, segment := range s.segments {
		if segment.Offset <= offset && offset-segment.Offset < segment.FileSize {
			return s.at(segment.Address + offset - segment.Offset)
		}
	}
	return ""
}

func (s *symbols) at(address uint64) string {
	next, found := slices.BinarySearchFunc(s.functions, address, func(f elf.Symbol, address uint64) int {
		return cmp.Compare(f.Value, address)
	})
	if !found {
		next--
	}
	if next < 0 || address-s.functions[next].Value >= max(s.functions[next].Size, 1) {
		return ""
	}
	return s.functions[next].Name
}

// readSymbols reads the symbol tables of a file and of its separate debug file,
// if that is installed. A profiler of strangers' files should not use
// debug/elf, which trusts them.
func readSymbols(file *elfnote.File) *symbols {
	s := &symbols{segments: slices.Collect(file.Segments())}
	s.read(file)
	if debug, err := file.OpenDebugFile(""); err == nil {
		s.read(debug)
		debug.Close()
	}
	slices.SortStableFunc(s.functions, func(a, b elf.Symbol) int { return cmp.Compare(a.Value, b.Value) })
	s.functions = slices.CompactFunc(s.functions, func(a, b elf.Symbol) bool { return a.Value == b.Value })
	return s
}

func (s *symbols) read(file *elfnote.File) {
	tables, err := elf.NewFile(file)
	if err != nil {
		return
	}
	for _, table := range []func() ([]elf.Symbol, error){tables.Symbols, tables.DynamicSymbols} {
		all, err := table()
		if err != nil {
			continue // there is none
		}
		for _, symbol := range all {
			if elf.ST_TYPE(symbol.Info) == elf.STT_FUNC && symbol.Section != elf.SHN_UNDEF {
				symbol.Value += file.Moved()
				s.functions = append(s.functions, symbol)
			}
		}
	}
}
