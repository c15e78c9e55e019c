// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/gousdt/gousdt/internal/elffile"
)

// Functions are the functions of symbol tables. It is not safe for concurrent
// use.
//
// The names are held as string tables, as the file has them: a small file can
// have very many symbols that share a long name.
type Functions struct {
	tables []functionTable
}

// functionTable has the functions of one symbol table.
type functionTable struct {
	functions []function        // by address, each address once
	names     []byte            // the string table
	given     map[uint32]string // names that were returned, by their offsets
}

type function struct {
	address uint64
	size    uint32 // at least 1
	name    uint32 // offset in names
}

// functionSize is the size of a function in memory, in bytes.
const functionSize = 16

// Function is a function of a file.
type Function struct {
	Name    string // arbitrary bytes without NUL
	Address uint64 // where it begins
}

// FunctionBytes returns how many bytes Functions reads at most, by the section
// headers: up to 2 GiB. Compressed sections count with their unpacked size.
func (f *File) FunctionBytes() int {
	total := uint64(0)
	for _, table := range f.SymbolTables {
		if table.Kind != elf.SHT_NULL {
			total += min(unpackedSize(&table), math.MaxInt32/4)
			if strings, err := f.LinkedSection(table); err == nil {
				total += min(unpackedSize(&strings), math.MaxInt32/4)
			}
		}
	}
	if f.SymbolTables[0].Kind == elf.SHT_NULL {
		s, _ := f.goSection()
		total += min(s.Size, maxUnpacked)
	}
	return int(total)
}

// Functions reads the functions that .symtab and .dynsym define, and those of
// Go's own table if there is no .symtab. For a file that FindDebugFile opened,
// addresses are those of the file it belongs to.
//
// It fails with ErrTruncated, ErrMalformed or ErrTooLarge if a table is
// unreadable, or with an error of the reader. With the error it returns the
// functions of the other table.
func (f *File) Functions() (*Functions, error) {
	all := new(Functions)
	var errs []error
	for _, table := range f.SymbolTables {
		functions, err := f.readFunctions(table)
		if err != nil {
			errs = append(errs, fmt.Errorf("functions in %v: %w", table.Kind, err))
		} else if len(functions.functions) > 0 {
			all.tables = append(all.tables, functions)
		}
	}
	if f.SymbolTables[0].Kind == elf.SHT_NULL && f.HasGoTable() {
		if table, err := f.GoTable(); err != nil {
			errs = append(errs, err)
		} else {
			all.tables = append(all.tables, table.table())
		}
	}
	return all, errors.Join(errs...)
}

// Append adds the functions of another file, such as the separate debug file.
// If both have a function, its name stays.
func (fs *Functions) Append(others *Functions) { fs.tables = append(fs.tables, others.tables...) }

// Size returns how many bytes the functions take in memory.
func (fs *Functions) Size() int {
	size := 0
	for _, t := range fs.tables {
		size += len(t.functions)*functionSize + len(t.names)
	}
	return size
}

// At returns the function at an address. A function without a size, such as one
// in assembly, counts as one byte: its end is not known.
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

// name returns the name at an offset of the string table. It reports false if
// there is none, or it is longer than elffile.MaxSymbolName.
func (t *functionTable) name(place uint32) (string, bool) {
	if name, ok := t.given[place]; ok {
		return name, name != ""
	}
	name := ""
	if uint64(place) < uint64(len(t.names)) {
		b := t.names[place:]
		b = b[:min(len(b), elffile.MaxSymbolName+1)]
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

// readFunctions reads the functions of one symbol table. If several begin at an
// address, it takes the largest: an empty one, or a label, may come before it.
// Of several names of a function it takes the first one in the table.
func (f *File) readFunctions(table elffile.Section) (functionTable, error) {
	size, strings, err := f.SymbolTable(table)
	if err != nil || size == 0 {
		return functionTable{}, err
	}
	in := f
	if table.Flags&elf.SHF_COMPRESSED != 0 {
		data, err := f.Unpack(table)
		if err != nil {
			return functionTable{}, err
		}
		in = &File{File: f.Over(data)}
		table.Offset, table.Size = 0, uint64(len(data))
	}
	type ordered struct {
		function
		order int // in the symbol table
	}
	var found []ordered
	err = in.EachSymbol(table, size, func(s elffile.Symbol, name uint32) error {
		kind := elf.ST_TYPE(s.Info)
		if kind != elf.STT_FUNC && kind != elf.STT_GNU_IFUNC {
			return nil
		}
		if len(found) == maxFunctions {
			return fmt.Errorf("more than %d functions: %w", maxFunctions, elffile.ErrTooLarge)
		}
		f := function{s.Value, uint32(min(max(s.Size, 1), math.MaxUint32)), name}
		found = append(found, ordered{f, len(found)})
		return nil
	})
	if err = cmp.Or(err, f.late()); err != nil || len(found) == 0 {
		return functionTable{}, err
	}
	slices.SortFunc(found, func(a, b ordered) int {
		return cmp.Or(cmp.Compare(a.address, b.address), cmp.Compare(b.size, a.size), a.order-b.order)
	})
	t := functionTable{functions: make([]function, 0, len(found))}
	for i, f := range found {
		if i == 0 || f.address != found[i-1].address {
			t.functions = append(t.functions, f.function)
		}
	}
	if t.names, err = f.Unpack(strings); err != nil {
		return functionTable{}, fmt.Errorf("names: %w", err)
	}
	return t, nil
}
