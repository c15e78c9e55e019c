// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"bytes"
	"debug/elf"
	"fmt"
	"iter"
	"strings"
	"sync"
)

type symbols struct {
	mutex sync.Mutex
	known map[string]*symbol // results for the names that were looked up
	work  uint64             // of these look-ups, see maxSymbolWork
}

// Symbol is an elf.Symbol without its name, in less memory.
type Symbol struct {
	Value, Size uint64
	Info, Other byte
	Section     uint16
}

func (s Symbol) isThreadLocal() bool { return elf.ST_TYPE(s.Info) == elf.STT_TLS }

// symbol is the result of a look-up.
type symbol struct {
	Symbol
	defined bool // by the table that is searched
	err     error
}

// symbolError is the reason why a symbol is not known. It is a type of its own
// to be small: a crafted file can cause very many.
type symbolError struct {
	name string
	err  error
}

func (e *symbolError) Error() string { return fmt.Sprintf("symbol %q: %v", e.name, e.err) }
func (e *symbolError) Unwrap() error { return e.err }

// Symbol returns the symbol that is defined under a name: in .symtab, else in
// .dynsym. Its Value is a virtual address, as linked, or for a thread-local
// variable (STT_TLS) the offset in the memory of its file's. Definitions at the
// same address count as one. Undefined symbols and the names of source files
// and sections are ignored. For a debug file, addresses are those of the file
// it belongs to, which prelink may have moved.
//
// It fails with ErrSymbolNotFound, with ErrSymbolAmbiguous if definitions have
// different addresses, with ErrTooLarge when all look-ups in this file have
// taken more than about a second, or if the tables are unreadable.
//
// The tables are searched when a name is first asked for, and not held in
// memory. The result is remembered.
func (f *File) Symbol(name string) (elf.Symbol, error) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	if f.symbols.known[name] == nil {
		f.lookUp([]string{name})
	}
	s := f.symbols.known[name]
	if s.err != nil {
		return elf.Symbol{}, s.err
	}
	return elf.Symbol{
		Name: name, Info: s.Info, Other: s.Other, Section: elf.SectionIndex(s.Section),
		Value: s.Value, Size: s.Size,
	}, nil
}

// FindSymbols remembers the results for many names: one pass over the tables
// takes little longer than for one name.
func (f *File) FindSymbols(names []string) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	f.lookUp(names)
}

// ArgumentWords returns the words in the arguments of probes that may be names
// of symbols: each one once, maxArgumentWords at most. It does not know the
// machine's syntax: a word that begins with a percent sign or a digit is a
// register or a number, and registers without a sigil are among the words.
func ArgumentWords(arguments iter.Seq[string]) (words []string) {
	known := make(map[string]bool)
	last := ""
	for text := range arguments {
		if text == last {
			continue // many sites in a row often have the same arguments
		}
		last = text
		for word := range strings.FieldsFuncSeq(text, func(c rune) bool {
			return c < 0x80 && !isWordPart(byte(c)) && c != '$' && c != '%'
		}) {
			word = strings.TrimLeft(word, "$")
			if len(word) < leastWord || word[0] == '%' || '0' <= word[0] && word[0] <= '9' || known[word] {
				continue
			}
			if len(words) == maxArgumentWords {
				return words
			}
			word = strings.Clone(word) // the site's strings share memory with others'
			known[word] = true
			words = append(words, word)
		}
	}
	return words
}

// leastWord is the length in bytes of the shortest word that is looked up with
// others: most shorter ones are registers. A symbol with a shorter name, or one
// that is in quotes since it has other bytes, is found when it is asked for.
const leastWord = 3

// isWordPart reports whether GNU as accepts a byte in the names of symbols. It
// also accepts a dollar sign, which at the start of a word is a sigil.
func isWordPart(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' ||
		c == '.' || c >= 0x80
}

// lookUp searches for the names that are not known yet.
func (f *File) lookUp(names []string) {
	if f.symbols.known == nil {
		f.symbols.known = make(map[string]*symbol)
	}
	wanted := make(map[string]*symbol)
	for _, name := range names {
		if f.symbols.known[name] != nil {
			continue
		}
		name = strings.Clone(name) // it may share the memory of a large string
		s := new(symbol)
		f.symbols.known[name] = s
		switch {
		case name == "" || strings.Contains(name, "\x00"):
			s.err = &symbolError{name, ErrSymbolNotFound}
		case len(name) > MaxSymbolName:
			s.err = &symbolError{name, ErrTooLarge}
		default:
			wanted[name] = s
		}
	}
	for _, table := range f.SymbolTables {
		if len(wanted) == 0 {
			return
		}
		err := f.search(table, wanted)
		for name, s := range wanted {
			if err != nil {
				s.err = &symbolError{name, err}
			}
			if s.defined || err != nil {
				delete(wanted, name)
			}
		}
	}
	for name, s := range wanted {
		s.err = &symbolError{name, ErrSymbolNotFound}
	}
}

// search looks names up in one symbol table.
func (f *File) search(table Section, names map[string]*symbol) error {
	size, strings, err := f.SymbolTable(table)
	if err != nil || size == 0 {
		return err
	}
	if (table.Flags|strings.Flags)&elf.SHF_COMPRESSED != 0 {
		return fmt.Errorf("symbol table: %w", ErrCompressed)
	}
	work := workOfName*uint64(len(names)) + strings.Size + 2*table.Size
	if err := f.charge(work); err != nil {
		return err
	}
	texts, err := f.ReadRange(strings.Offset, strings.Size)
	if err != nil {
		return fmt.Errorf("symbol names: %w", err)
	}
	var begins [256]bool // one of the names begins with the byte
	var isLength []bool  // of one of the names
	for name := range names {
		begins[name[0]] = true
		isLength = append(isLength, make([]bool, max(0, len(name)+1-len(isLength)))...)
		isLength[len(name)] = true
	}
	return f.EachSymbol(table, size, func(s Symbol, place uint32) error {
		text := texts[min(uint64(place), uint64(len(texts))):]
		text = text[:min(len(text), len(isLength))]
		if len(text) == 0 || !begins[text[0]] {
			return f.charge(workOfString)
		}
		name, _, ends := bytes.Cut(text, []byte{0})
		if !ends || !isLength[len(name)] {
			return f.charge(workOfString + uint64(len(name)))
		}
		if found := names[string(name)]; found != nil {
			switch {
			case found.defined && (found.Value != s.Value ||
				found.isThreadLocal() != s.isThreadLocal()):
				found.err = &symbolError{string(name), ErrSymbolAmbiguous}
			case !found.defined || elf.ST_BIND(found.Info) == elf.STB_LOCAL:
				// Prefer a symbol that is not local to its source file.
				*found = symbol{s, true, found.err}
			}
		}
		return f.charge(workOfProbe + uint64(len(name)))
	})
}

// charge fails if all look-ups exceed maxSymbolWork. Sizes that a file claims
// are charged before anything is read.
func (f *File) charge(work uint64) error {
	if work > maxSymbolWork-f.symbols.work {
		return fmt.Errorf("work of all look-ups together: %w", ErrTooLarge)
	}
	f.symbols.work += work
	return nil
}

const (
	symbolSize32 = 16
	symbolSize64 = 24
)

// SymbolTable returns the size of a symbol in bytes, and the section of the
// symbols' names. The size is 0 if there is no table, or there are no names.
func (f *File) SymbolTable(table Section) (size uint64, strings Section, err error) {
	size = symbolSize32
	if f.Words.Wide {
		size = symbolSize64
	}
	if table.Kind == elf.SHT_NULL || table.Size < size {
		return 0, Section{}, nil
	}
	if table.record != size || table.Offset+table.Size < table.Offset {
		return 0, Section{}, fmt.Errorf("symbol table: %w", ErrMalformed)
	}
	strings, err = f.LinkedSection(table)
	switch {
	case err != nil:
	case strings.Kind == elf.SHT_NOBITS:
		size = 0
	case table.Size/size > maxSymbols:
		err = fmt.Errorf("%d symbols: %w", table.Size/size, ErrTooLarge)
	case strings.Size > maxSymbolNames:
		err = fmt.Errorf("%d bytes of names: %w", strings.Size, ErrTooLarge)
	}
	return size, strings, err
}

// LinkedSection returns the section of names that a symbol table refers to.
func (f *File) LinkedSection(s Section) (Section, error) {
	if uint64(s.link) >= f.sections.count {
		return Section{}, fmt.Errorf("symbol names in section %d of %d: %w", s.link,
			f.sections.count, ErrMalformed)
	}
	b := make([]byte, f.sections.size)
	if err := f.ReadFull(b, f.sections.offset+uint64(s.link)*uint64(f.sections.size)); err != nil {
		return Section{}, fmt.Errorf("section header %d: %w", s.link, err)
	}
	return decodeSection(f.Words, b), nil
}

// EachSymbol calls do with the symbols of a table that define something, and
// the offsets of their names, until do fails. size is that of a symbol.
func (f *File) EachSymbol(table Section, size uint64, do func(s Symbol, name uint32) error) error {
	if err := f.Reaches(table.Offset, table.Size); err != nil {
		return fmt.Errorf("symbol table: %w", err)
	}
	buffer := NewBuffer()
	defer buffer.Free()
	whole := buffer[:ChunkSize/size*size]
	for at := uint64(0); table.Size-at >= size; {
		b := whole[:min(uint64(len(whole)), (table.Size-at)/size*size)]
		if err := f.ReadFull(b, table.Offset+at); err != nil {
			return fmt.Errorf("symbol table: %w", err)
		}
		at += uint64(len(b))
		for ; len(b) > 0; b = b[size:] {
			if s, ok := f.definition(b); ok {
				if err := do(s, f.Words.Uint32(b)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// definition decodes a symbol, and reports whether it defines something that
// has a place.
func (f *File) definition(b []byte) (s Symbol, ok bool) {
	w := f.Words
	if w.Wide {
		s.Info, s.Other, s.Section = b[4], b[5], w.Uint16(b[6:])
		s.Value, s.Size = w.Uint64(b[8:]), w.Uint64(b[16:])
	} else {
		s.Value, s.Size = uint64(w.Uint32(b[4:])), uint64(w.Uint32(b[8:]))
		s.Info, s.Other, s.Section = b[12], b[13], w.Uint16(b[14:])
	}
	in := elf.SectionIndex(s.Section)
	if in == elf.SHN_UNDEF || in == elf.SHN_COMMON {
		return s, false
	}
	switch elf.ST_TYPE(s.Info) {
	case elf.STT_SECTION, elf.STT_FILE:
		return s, false
	case elf.STT_TLS:
		return s, true // the value is no address: prelink does not move it
	}
	if in != elf.SHN_ABS { // absolute values do not move
		s.Value = w.Moved(s.Value, f.Moved)
	}
	return s, true
}
