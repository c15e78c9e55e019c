// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Functions are the functions that symbol tables name, by address. It is not
// safe for concurrent use.
//
// The names are held as they are in the file, one string table for each symbol
// table: a small file can have very many symbols that share a long name.
type Functions struct {
	tables []functionTable
}

// functionTable has the functions of one symbol table.
type functionTable struct {
	functions []function // by address, each address once
	names     []byte
	given     map[uint32]string // names that have been returned
}

type function struct {
	address uint64
	size    uint32 // at least 1
	name    uint32 // where it is in names
}

// functionSize is the size of a function in bytes.
const functionSize = 16

// Function is a function of a file.
type Function struct {
	Name    string // arbitrary bytes without NUL
	Address uint64 // where it begins
}

// FunctionBytes returns how many bytes of the file Functions reads at most, by
// what the section headers say: up to 2 GiB.
func (f *File) FunctionBytes() int {
	total := uint64(0)
	for _, table := range []Section{f.symbols.static, f.symbols.dynamic} {
		if table.Kind != elf.SHT_NULL {
			total += min(table.Size, math.MaxInt32/4)
			if strings, err := f.linkedSection(table); err == nil {
				total += min(strings.Size, math.MaxInt32/4)
			}
		}
	}
	return int(total)
}

// Functions reads the functions that .symtab and .dynsym define. Those of a
// file that FindDebugFile opened have the addresses in the file it belongs to.
//
// It fails with ErrTruncated, ErrMalformed, ErrTooLarge or ErrCompressed where
// a table is unreadable, or with an error of the reader. What it returns then
// has the functions of the other table.
func (f *File) Functions() (*Functions, error) {
	all := new(Functions)
	var errs []error
	for _, table := range []Section{f.symbols.static, f.symbols.dynamic} {
		functions, err := f.readFunctions(table)
		if err != nil {
			errs = append(errs, fmt.Errorf("functions in %v: %w", table.Kind, err))
		} else if len(functions.functions) > 0 {
			all.tables = append(all.tables, functions)
		}
	}
	return all, errors.Join(errs...)
}

// Append adds the functions of another file, such as the separate debug file.
// Where both know a function, its name stays.
func (fs *Functions) Append(others *Functions) { fs.tables = append(fs.tables, others.tables...) }

// Size returns what the functions take in memory, in bytes.
func (fs *Functions) Size() int {
	size := 0
	for _, t := range fs.tables {
		size += len(t.functions)*functionSize + len(t.names)
	}
	return size
}

// At returns the function at an address. A function without a size has one
// byte: of a hand-written one it is not known where it ends.
func (fs *Functions) At(address uint64) (f Function, ok bool) {
	for i := range fs.tables {
		if f, ok = fs.tables[i].at(address); ok {
			return f, true
		}
	}
	return Function{}, false
}

func (t *functionTable) at(address uint64) (Function, bool) {
	next, found := slices.BinarySearchFunc(t.functions, address, func(f function, address uint64) int {
		return cmp.Compare(f.address, address)
	})
	if !found {
		next--
	}
	if next < 0 || address-t.functions[next].address >= uint64(t.functions[next].size) {
		return Function{}, false
	}
	f := t.functions[next]
	name, ok := t.name(f.name)
	return Function{Name: name, Address: f.address}, ok
}

// name returns the name at a place of the string table, if it is one.
func (t *functionTable) name(place uint32) (string, bool) {
	if name, ok := t.given[place]; ok {
		return name, name != ""
	}
	name := ""
	if uint64(place) < uint64(len(t.names)) {
		b := t.names[place:]
		b = b[:min(len(b), maxFunctionName+1)]
		name = string(b[:max(bytes.IndexByte(b, 0), 0)])
	}
	if t.given == nil {
		t.given = make(map[uint32]string)
	}
	if len(t.given) >= maxGiven {
		clear(t.given)
	}
	t.given[place] = name
	return name, name != ""
}

// readFunctions reads the functions of one symbol table.
func (f *File) readFunctions(table Section) (functionTable, error) {
	size, strings, err := f.symbolTable(table)
	if err != nil || size == 0 {
		return functionTable{}, err
	}
	if table.Size/size > maxFunctionSymbols {
		return functionTable{}, fmt.Errorf("%d symbols: %w", table.Size/size, ErrTooLarge)
	}
	if strings.Kind == elf.SHT_NOBITS {
		return functionTable{}, nil
	}
	if strings.Size > maxFunctionNames {
		return functionTable{}, fmt.Errorf("%d bytes of names: %w", strings.Size, ErrTooLarge)
	}
	if err := f.Reaches(table.Offset, table.Size); err != nil {
		return functionTable{}, err
	}
	buffer := NewBuffer()
	defer buffer.Free()
	var found []orderedFunction
	whole := buffer[:ChunkSize/size*size]
	for at := uint64(0); table.Size-at >= size; {
		b := whole[:min(uint64(len(whole)), (table.Size-at)/size*size)]
		if err := f.ReadFull(b, table.Offset+at); err != nil {
			return functionTable{}, err
		}
		at += uint64(len(b))
		for ; len(b) > 0; b = b[size:] {
			function, ok := f.functionSymbol(b)
			if !ok {
				continue
			}
			if len(found) == maxFunctions {
				return functionTable{}, fmt.Errorf("more than %d functions: %w", maxFunctions,
					ErrTooLarge)
			}
			found = append(found, orderedFunction{function, uint32(len(found))})
		}
	}
	if len(found) == 0 {
		return functionTable{}, nil
	}
	t := functionTable{functions: byAddress(found)}
	if t.names, err = f.ReadRange(strings.Offset, strings.Size); err != nil {
		return functionTable{}, fmt.Errorf("names: %w", err)
	}
	return t, nil
}

// orderedFunction is a function with its number in the symbol table.
type orderedFunction struct {
	function
	order uint32
}

// byAddress sorts functions. Of several names for a function the first one in
// the symbol table stays.
func byAddress(found []orderedFunction) []function {
	slices.SortFunc(found, func(a, b orderedFunction) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(a.order, b.order))
	})
	found = slices.CompactFunc(found,
		func(a, b orderedFunction) bool { return a.address == b.address })
	functions := make([]function, len(found))
	for i, f := range found {
		functions[i] = f.function
	}
	return functions
}

// functionSymbol returns a symbol if it defines a function.
func (f *File) functionSymbol(b []byte) (function, bool) {
	symbol, ok := f.definition(b)
	kind := elf.ST_TYPE(symbol.info)
	if !ok || kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC {
		return function{}, false
	}
	return function{symbol.value, uint32(min(max(symbol.size, 1), math.MaxUint32)),
		f.Words.Uint32(b)}, true
}
