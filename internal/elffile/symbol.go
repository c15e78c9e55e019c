// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
	"strings"
	"sync"
)

// symbols is what is known of a file's symbols.
type symbols struct {
	static, dynamic Section // .symtab and .dynsym, of type SHT_NULL if there is none
	moved           uint64  // how much higher the addresses are in the file that this is the debug file of

	mutex sync.Mutex
	known map[string]symbol // the names looked up so far
	work  uint64            // what that took, see maxSymbolWork
}

// symbol is the outcome of a look-up: what elf.Symbol has, in less memory.
type symbol struct {
	value, size uint64
	info, other byte
	section     uint16
	err         error
}

// isThreadLocal reports whether the symbol is a thread-local variable.
func (s *symbol) isThreadLocal() bool { return elf.ST_TYPE(s.info) == elf.STT_TLS }

// symbolError is why a symbol is not known. It is a type of its own to be
// small: a crafted file has very many of them.
type symbolError struct {
	name string
	err  error
}

func (e *symbolError) Error() string { return fmt.Sprintf("symbol %q: %v", e.name, e.err) }
func (e *symbolError) Unwrap() error { return e.err }

// Symbol returns the symbol that is defined under a name: in .symtab, else in
// .dynsym. Its Value is a virtual address, as linked; that of a thread-local
// variable, whose type is STT_TLS, is the offset in the memory of its file's
// thread-local variables. Definitions at the same address are one. Undefined
// symbols and the names of source files and sections do not count. Of a file
// that FindDebugFile opened the addresses are those of the file it belongs to,
// which prelink may have moved.
//
// It fails with ErrSymbolNotFound, with ErrSymbolAmbiguous where definitions
// have different addresses, with ErrTruncated, ErrMalformed, ErrTooLarge or
// ErrCompressed where the tables are unreadable, or with an error of the
// reader. ErrTooLarge is also the answer when look-ups in this file have taken
// more than about a second altogether.
//
// The tables are searched when a name is first asked for, without being held in
// memory; the outcome is remembered. FindSymbols does that for many names.
func (f *File) Symbol(name string) (elf.Symbol, error) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	s, ok := f.symbols.known[name]
	if !ok {
		f.lookUp([]string{name})
		s = f.symbols.known[name]
	}
	if s.err != nil {
		return elf.Symbol{}, s.err
	}
	return elf.Symbol{
		Name: name, Info: s.info, Other: s.other, Section: elf.SectionIndex(s.section),
		Value: s.value, Size: s.size,
	}, nil
}

// FindSymbols searches for many names at once, and remembers the outcome for
// Symbol: one pass over the tables takes little longer than for one name.
func (f *File) FindSymbols(names []string) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	f.lookUp(names)
}

// lookUp searches for the names that are not known yet.
func (f *File) lookUp(names []string) {
	if f.symbols.known == nil {
		f.symbols.known = make(map[string]symbol)
	}
	var wanted []string
	for _, name := range names {
		if _, known := f.symbols.known[name]; known {
			continue
		}
		name = strings.Clone(name) // it may be a part of something large
		f.know(name, symbol{}, nil)
		switch {
		case name == "" || strings.Contains(name, "\x00"):
			f.know(name, symbol{}, ErrSymbolNotFound)
		case len(name) > maxSymbolName:
			f.know(name, symbol{}, ErrTooLarge)
		default:
			wanted = append(wanted, name)
		}
	}
	for _, table := range []Section{f.symbols.static, f.symbols.dynamic} {
		if len(wanted) > 0 {
			wanted = f.searchTable(table, wanted)
		}
	}
	for _, name := range wanted {
		f.know(name, symbol{}, ErrSymbolNotFound)
	}
}

// know remembers what became of a name.
func (f *File) know(name string, s symbol, err error) {
	if err != nil {
		s.err = &symbolError{name, err}
	}
	f.symbols.known[name] = s
}

// searchTable looks names up in one symbol table. It returns those that another
// table may define.
func (f *File) searchTable(table Section, names []string) []string {
	search := &symbolSearch{file: f, names: names, found: make([]foundSymbol, len(names))}
	err := search.search(table)
	left := names[:0]
	for i, name := range names {
		switch found := &search.found[i]; {
		case err != nil:
			f.know(name, symbol{}, err)
		case found.ambiguous:
			f.know(name, symbol{}, ErrSymbolAmbiguous)
		case found.defined:
			f.know(name, found.symbol, nil)
		default:
			left = append(left, name)
		}
	}
	return left
}
