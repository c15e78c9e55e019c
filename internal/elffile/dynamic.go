// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
)

// PLTGOT returns the virtual address of the global offset table, as linked:
// what i386 code counts from where an argument says SYM@GOTOFF. It is DT_PLTGOT
// of the dynamic section; where there is none (a static program, a separate
// debug file) the symbol _GLOBAL_OFFSET_TABLE_, else the section .got.plt, at
// whose start i386 linkers put it.
//
// It fails with ErrNoPLTGOT where none of these exists, with ErrTruncated or
// ErrTooLarge where the dynamic section is unreadable, with the errors of
// Symbol other than ErrSymbolNotFound, or with an error of the reader.
func (f *File) PLTGOT() (uint64, error) {
	if f.HasCode() {
		address, found, err := f.dynamicEntry(elf.DT_PLTGOT)
		if err != nil {
			return 0, err
		}
		if found {
			return f.Words.Moved(address, f.symbols.moved), nil
		}
	}
	address, err := f.Symbol("_GLOBAL_OFFSET_TABLE_")
	if !errors.Is(err, ErrSymbolNotFound) {
		return address, err
	}
	if f.gotPLT != 0 {
		return f.Words.Moved(f.gotPLT, f.symbols.moved), nil
	}
	return 0, ErrNoPLTGOT
}

// dynamicEntry returns the value of the first entry of the dynamic section that
// has the tag.
func (f *File) dynamicEntry(tag elf.DynTag) (value uint64, found bool, err error) {
	if f.dynamic.FileSize > maxDynamicBytes {
		return 0, false, fmt.Errorf("dynamic section of %d bytes: %w", f.dynamic.FileSize, ErrTooLarge)
	}
	word := f.Words.Size()
	entries := table{offset: f.dynamic.Offset, size: 2 * word, count: f.dynamic.FileSize / uint64(2*word)}
	w := newWindow(f)
	defer w.close()
	for i := range entries.count {
		b, err := w.record(entries, i)
		if err != nil {
			return 0, false, fmt.Errorf("dynamic section: %w", err)
		}
		switch t := f.Words.Address(b); t {
		case uint64(elf.DT_NULL):
			return 0, false, nil
		case uint64(tag):
			return f.Words.Address(b[word:]), true, nil
		}
	}
	return 0, false, nil
}
