// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// symbols is what is known of a file's symbols.
type symbols struct {
	static, dynamic section // .symtab and .dynsym, of type SHT_NULL if there is none

	mutex sync.Mutex
	known map[string]symbol // the names looked up so far
	work  uint64            // bytes read for that
}

// symbol is the outcome of a look-up.
type symbol struct {
	address uint64
	err     error
}

// Symbol returns the virtual address of the symbol that is defined under a
// name, as linked: in .symtab, else in .dynsym. Definitions at the same address
// are one. Undefined symbols, and the names of source files, sections and
// thread-local variables, do not count.
//
// It fails with ErrSymbolNotFound, with ErrSymbolAmbiguous where definitions
// have different addresses, with ErrTruncated, ErrMalformed, ErrTooLarge or
// ErrCompressed where the tables are unreadable, or with an error of the reader.
//
// The tables are searched when a name is first asked for, without being held in
// memory; the outcome is remembered.
func (f *File) Symbol(name string) (uint64, error) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	s, ok := f.symbols.known[name]
	if !ok {
		s.address, s.err = f.lookUp(name)
		if s.err != nil {
			s.err = fmt.Errorf("symbol %q: %w", name, s.err)
		}
		if f.symbols.known == nil {
			f.symbols.known = make(map[string]symbol)
		}
		// The name may be a part of something large.
		f.symbols.known[strings.Clone(name)] = s
	}
	return s.address, s.err
}

func (f *File) lookUp(name string) (uint64, error) {
	if name == "" || strings.Contains(name, "\x00") {
		return 0, ErrSymbolNotFound
	}
	for _, table := range []section{f.symbols.static, f.symbols.dynamic} {
		address, found, err := f.lookUpIn(table, name)
		if found || err != nil {
			return address, err
		}
	}
	return 0, ErrSymbolNotFound
}

// The sizes of a symbol.
const (
	symbolSize32 = 16
	symbolSize64 = 24
)

// lookUpIn searches one symbol table. It finds the name in the string table
// first, so that no name of any other symbol need be read.
func (f *File) lookUpIn(s section, name string) (address uint64, found bool, err error) {
	size := uint64(symbolSize32)
	if f.words.wide {
		size = symbolSize64
	}
	if s.kind == elf.SHT_NULL || s.size < size {
		return 0, false, nil
	}
	if s.record != size || s.offset+s.size < s.offset {
		return 0, false, fmt.Errorf("symbol table: %w", ErrMalformed)
	}
	if uint64(s.link) >= f.sections.count {
		return 0, false, fmt.Errorf("symbol names in section %d of %d: %w", s.link, f.sections.count, ErrMalformed)
	}
	w := newWindow(f)
	defer w.close()
	b, err := w.record(f.sections, uint64(s.link))
	if err != nil {
		return 0, false, fmt.Errorf("section header %d: %w", s.link, err)
	}
	strings := decodeSection(f.words, b)
	if (s.flags|strings.flags)&elf.SHF_COMPRESSED != 0 {
		return 0, false, fmt.Errorf("symbol table: %w", ErrCompressed)
	}
	left := maxSymbolWork - f.symbols.work
	if s.size > left || strings.size > left-s.size {
		return 0, false, fmt.Errorf("symbol tables, all look-ups together: %w", ErrTooLarge)
	}
	f.symbols.work += s.size + strings.size
	names, err := f.findName(strings, name)
	if err != nil {
		return 0, false, fmt.Errorf("symbol names: %w", err)
	}
	if len(names) == 0 {
		return 0, false, nil
	}

	buffer := make([]byte, chunkSize/size*size)
	for at := uint64(0); s.size-at >= size; {
		b := buffer[:min(uint64(len(buffer)), (s.size-at)/size*size)]
		if err := f.readFull(b, s.offset+at); err != nil {
			return 0, false, fmt.Errorf("symbol table: %w", err)
		}
		at += uint64(len(b))
		for ; len(b) > 0; b = b[size:] {
			if _, ok := slices.BinarySearch(names, uint64(f.words.uint32(b))); !ok {
				continue
			}
			value, ok := definition(f.words, b)
			switch {
			case !ok:
			case !found:
				address, found = value, true
			case address != value:
				return 0, true, ErrSymbolAmbiguous
			}
		}
	}
	return address, found, nil
}

// definition returns the value of a symbol if it defines an address.
func definition(w words, b []byte) (value uint64, ok bool) {
	var info byte
	var in elf.SectionIndex
	if w.wide {
		info, in, value = b[4], elf.SectionIndex(w.uint16(b[6:])), w.uint64(b[8:])
	} else {
		value, info, in = uint64(w.uint32(b[4:])), b[12], elf.SectionIndex(w.uint16(b[14:]))
	}
	if in == elf.SHN_UNDEF || in == elf.SHN_COMMON {
		return 0, false
	}
	switch elf.ST_TYPE(info) {
	case elf.STT_SECTION, elf.STT_FILE, elf.STT_TLS:
		return 0, false
	}
	return value, true
}

// findName returns the places of a string table at which name ends, counted
// from the table's start, in ascending order.
func (f *File) findName(s section, name string) ([]uint64, error) {
	if s.kind == elf.SHT_NOBITS {
		return nil, nil
	}
	want := append([]byte(name), 0)
	buffer := make([]byte, chunkSize+len(want))
	var found []uint64
	kept := 0 // bytes at the start of buffer that are from before
	for at := uint64(0); at < s.size; {
		b := buffer[:kept+int(min(chunkSize, s.size-at))]
		if err := f.readFull(b[kept:], s.offset+at); err != nil {
			return nil, err
		}
		start := at - uint64(kept)
		at += uint64(len(b) - kept)
		for from := 0; ; from++ {
			i := bytes.Index(b[from:], want)
			if i < 0 {
				break
			}
			if len(found) == maxSymbolNames {
				return nil, ErrTooLarge
			}
			from += i
			found = append(found, start+uint64(from))
		}
		// The name may go on in the next chunk.
		kept = copy(buffer, b[len(b)-min(len(b), len(want)-1):])
	}
	return found, nil
}
