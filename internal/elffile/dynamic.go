// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
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

	// The string table and offsets in it, 0 for none.
	strings, stringsSize uint64
	needed               []uint64
	rpath, runpath       uint64
}

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
	if f.HasCode() {
		switch d := f.readDynamic(); {
		case d.hasGOT:
			return f.Words.Moved(d.got, f.symbols.moved), nil
		case d.err != nil:
			return 0, d.err
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
	if f.Type != elf.ET_DYN || f.IsDebugFile {
		return f.Type == elf.ET_EXEC
	}
	d := f.readDynamic()
	return d.err == nil && (d.isPIE || f.interpreter.FileSize > 0 && !d.hasSoname)
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

// Linkage names the libraries that a file needs, for the dynamic linker.
type Linkage struct {
	Needed         []string // their names or paths
	RPath, RunPath string   // where to look for them, divided by colons
}

// Linkage returns that of the file, without what cannot be read.
func (f *File) Linkage() (l Linkage) {
	d := f.readDynamic()
	if d.err != nil || !f.HasCode() {
		return l
	}
	text := func(offset uint64) string {
		segment := f.Segment(d.strings, d.stringsSize, 0)
		if segment == nil || offset >= d.stringsSize {
			return ""
		}
		b, err := f.ReadRange(segment.Offset+d.strings-segment.Address+offset,
			min(d.stringsSize-offset, maxInterpreter))
		if end := bytes.IndexByte(b, 0); err == nil && end >= 0 {
			return string(b[:end])
		}
		return ""
	}
	for _, offset := range d.needed {
		if name := text(offset); name != "" {
			l.Needed = append(l.Needed, name)
		}
	}
	if d.rpath != 0 {
		l.RPath = text(d.rpath)
	}
	if d.runpath != 0 {
		l.RunPath = text(d.runpath)
	}
	return l
}

func (f *File) readDynamic() *dynamics {
	d := &f.dynamics
	d.once.Do(func() {
		if f.dynamic.FileSize > maxDynamicBytes {
			d.err = fmt.Errorf("dynamic section of %d bytes: %w", f.dynamic.FileSize, ErrTooLarge)
			return
		}
		word := f.Words.Size()
		entries := table{offset: f.dynamic.Offset, size: 2 * word,
			count: f.dynamic.FileSize / uint64(2*word)}
		w := newWindow(f)
		defer w.close()
		for i := range entries.count {
			b, err := w.record(entries, i)
			if err != nil {
				d.err = fmt.Errorf("dynamic section: %w", err)
				return
			}
			switch value := f.Words.Address(b[word:]); elf.DynTag(f.Words.Address(b)) {
			case elf.DT_NULL:
				return
			case elf.DT_PLTGOT:
				if !d.hasGOT {
					d.got, d.hasGOT = value, true
				}
			case elf.DT_FLAGS_1:
				d.isPIE = d.isPIE || elf.DynFlag1(value)&elf.DF_1_PIE != 0
			case elf.DT_SONAME:
				d.hasSoname = true
			case elf.DT_STRTAB:
				d.strings = value
			case elf.DT_STRSZ:
				d.stringsSize = value
			case elf.DT_NEEDED:
				if len(d.needed) < maxNeeded {
					d.needed = append(d.needed, value)
				}
			case elf.DT_RPATH:
				d.rpath = value
			case elf.DT_RUNPATH:
				d.runpath = value
			}
		}
	})
	return d
}
