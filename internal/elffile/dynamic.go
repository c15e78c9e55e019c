// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"sync"
)

// dynamics is what matters of the dynamic section. It is read once: a crafted
// file can have a long one, and arguments that need it very often.
type dynamics struct {
	once sync.Once
	err  error // of reading the section

	got              uint64 // the first DT_PLTGOT
	hasGOT           bool
	isPIE, hasSoname bool // there is DF_1_PIE, and DT_SONAME
}

// GOT is the symbol of the global offset table.
const GOT = "_GLOBAL_OFFSET_TABLE_"

// GOTSymbol returns that symbol. In i386 code, SYM@GOTOFF in an argument is
// relative to it. Its value, as linked, is DT_PLTGOT of the dynamic section.
// Without that entry, as in a static program and a separate debug file, it is
// that of the symbol table, else the section .got.plt, at whose start i386
// linkers put the table. Without any of these it fails with ErrNoPLTGOT.
func (f *File) GOTSymbol() (elf.Symbol, error) {
	at := func(address uint64) (elf.Symbol, error) {
		return elf.Symbol{Name: GOT, Info: elf.ST_INFO(elf.STB_LOCAL, elf.STT_OBJECT),
			Value: f.Words.Moved(address, f.Moved)}, nil
	}
	if f.HasCode() {
		switch d := f.readDynamic(); {
		case d.hasGOT:
			return at(d.got)
		case d.err != nil:
			return elf.Symbol{}, d.err
		}
	}
	symbol, err := f.Symbol(GOT)
	if !errors.Is(err, ErrSymbolNotFound) {
		return symbol, err
	}
	if got := f.Section(gotSection).Address; got != 0 {
		return at(got)
	}
	return elf.Symbol{}, ErrNoPLTGOT
}

// IsProgram reports whether the file is a program and not a library: an
// ET_EXEC, or an ET_DYN with the mark DF_1_PIE. Older linkers do not set that
// mark: then it is an ET_DYN with an interpreter and without DT_SONAME. The
// separate debug file of an ET_DYN has none of these.
func (f *File) IsProgram() bool {
	if f.Type != elf.ET_DYN || f.IsDebugFile {
		return f.Type == elf.ET_EXEC
	}
	d := f.readDynamic()
	return d.err == nil && (d.isPIE || f.Interpreter.FileSize > 0 && !d.hasSoname)
}

func (f *File) readDynamic() *dynamics {
	d := &f.dynamics
	d.once.Do(func() {
		d.err = f.EachDynamic(func(tag elf.DynTag, value uint64) {
			switch tag {
			case elf.DT_PLTGOT:
				if !d.hasGOT {
					d.got, d.hasGOT = value, true
				}
			case elf.DT_FLAGS_1:
				d.isPIE = d.isPIE || elf.DynFlag1(value)&elf.DF_1_PIE != 0
			case elf.DT_SONAME:
				d.hasSoname = true
			}
		})
	})
	return d
}

// EachDynamic calls do with the entries of the dynamic section.
func (f *File) EachDynamic(do func(tag elf.DynTag, value uint64)) error {
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
		tag := elf.DynTag(f.Words.Address(b))
		if tag == elf.DT_NULL {
			break
		}
		do(tag, f.Words.Address(b[word:]))
	}
	return nil
}
