// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
)

// PLTGOT returns the virtual address of the global offset table, as linked. In
// i386 code, SYM@GOTOFF in an argument is relative to it. The address is
// DT_PLTGOT of the dynamic section. Without that entry, as in a static program
// and a separate debug file, it is the symbol _GLOBAL_OFFSET_TABLE_, else the
// section .got.plt, at whose start i386 linkers put the table.
//
// It fails with ErrNoPLTGOT if none of these exists, with ErrTruncated or
// ErrTooLarge if the dynamic section is unreadable, with the errors of Symbol
// other than ErrSymbolNotFound, or with an error of the reader.
func (f *File) PLTGOT() (uint64, error) {
	f.got.once.Do(func() { f.got.address, f.got.err = f.findPLTGOT() })
	return f.got.address, f.got.err
}

func (f *File) findPLTGOT() (uint64, error) {
	if f.HasCode() {
		address, found, err := f.dynamicEntry(elf.DT_PLTGOT)
		if err != nil {
			return 0, err
		}
		if found {
			return f.Words.Moved(address, f.symbols.moved), nil
		}
	}
	symbol, err := f.Symbol("_GLOBAL_OFFSET_TABLE_")
	if !errors.Is(err, ErrSymbolNotFound) {
		return symbol.Value, err
	}
	if f.gotPLT != 0 {
		return f.Words.Moved(f.gotPLT, f.symbols.moved), nil
	}
	return 0, ErrNoPLTGOT
}

// IsProgram reports whether the file is a program and not a library. A program
// is an ET_EXEC, or an ET_DYN with the mark DF_1_PIE. Older linkers do not set
// that mark: then it is an ET_DYN with an interpreter and without DT_SONAME.
// IsProgram reports false for the separate debug file of an ET_DYN, which has
// none of these.
func (f *File) IsProgram() bool {
	f.program.once.Do(func() { f.program.is = f.isProgram() })
	return f.program.is
}

func (f *File) isProgram() bool {
	if f.Type != elf.ET_DYN || f.IsDebugFile {
		return f.Type == elf.ET_EXEC
	}
	marked, named := false, false
	err := f.dynamicEntries(func(tag elf.DynTag, value uint64) bool {
		marked = marked || tag == elf.DT_FLAGS_1 && elf.DynFlag1(value)&elf.DF_1_PIE != 0
		named = named || tag == elf.DT_SONAME
		return true
	})
	return err == nil && (marked || f.interpreter.FileSize > 0 && !named)
}

// Interpreter returns the path of the dynamic linker that the file names, or
// "". It returns "" for a separate debug file.
func (f *File) Interpreter() string {
	size := f.interpreter.FileSize
	if size == 0 || size > maxInterpreter || f.IsDebugFile {
		return ""
	}
	path, err := f.ReadRange(f.interpreter.Offset, size)
	if err != nil {
		return ""
	}
	path, _, _ = bytes.Cut(path, []byte{0})
	return string(path)
}

// dynamicEntry returns the value of the first entry of the dynamic section that
// has the tag.
func (f *File) dynamicEntry(tag elf.DynTag) (value uint64, found bool, err error) {
	err = f.dynamicEntries(func(t elf.DynTag, v uint64) bool {
		value, found = v, t == tag
		return !found
	})
	if !found {
		value = 0
	}
	return value, found, err
}

// dynamicEntries calls yield for the entries of the dynamic section, until that
// returns false.
func (f *File) dynamicEntries(yield func(tag elf.DynTag, value uint64) bool) error {
	if f.dynamic.FileSize > maxDynamicBytes {
		return fmt.Errorf("dynamic section of %d bytes: %w", f.dynamic.FileSize, ErrTooLarge)
	}
	word := f.Words.Size()
	entries := table{offset: f.dynamic.Offset, size: 2 * word,
		count: f.dynamic.FileSize / uint64(2*word)}
	w := newWindow(f)
	defer w.close()
	for i := range entries.count {
		b, err := w.record(entries, i)
		if err != nil {
			return fmt.Errorf("dynamic section: %w", err)
		}
		tag := f.Words.Address(b)
		if tag == uint64(elf.DT_NULL) || !yield(elf.DynTag(tag), f.Words.Address(b[word:])) {
			return nil
		}
	}
	return nil
}
