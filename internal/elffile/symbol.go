// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
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

// symbol is the outcome of a look-up.
type symbol struct {
	address uint64
	err     error
}

// symbolError is why a symbol has no address. It is a type of its own to be
// small: a crafted file has very many of them.
type symbolError struct {
	name string
	err  error
}

func (e *symbolError) Error() string { return fmt.Sprintf("symbol %q: %v", e.name, e.err) }
func (e *symbolError) Unwrap() error { return e.err }

// Symbol returns the virtual address of the symbol that is defined under a
// name, as linked: in .symtab, else in .dynsym. Definitions at the same address
// are one. Undefined symbols, and the names of source files, sections and
// thread-local variables, do not count. Of a file that OpenDebugFile opened the
// addresses are those of the file it belongs to, which prelink may have moved.
//
// It fails with ErrSymbolNotFound, with ErrSymbolAmbiguous where definitions
// have different addresses, with ErrTruncated, ErrMalformed, ErrTooLarge or
// ErrCompressed where the tables are unreadable, or with an error of the
// reader. ErrTooLarge is also the answer when look-ups in this file have taken
// more than about a second altogether.
//
// The tables are searched when a name is first asked for, without being held in
// memory; the outcome is remembered. FindSymbols does that for many names.
func (f *File) Symbol(name string) (uint64, error) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	s, ok := f.symbols.known[name]
	if !ok {
		f.lookUp([]string{name})
		s = f.symbols.known[name]
	}
	return s.address, s.err
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
		f.know(name, 0, nil)
		switch {
		case name == "" || strings.Contains(name, "\x00"):
			f.know(name, 0, ErrSymbolNotFound)
		case len(name) > maxSymbolName:
			f.know(name, 0, ErrTooLarge)
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
		f.know(name, 0, ErrSymbolNotFound)
	}
}

// know remembers what became of a name.
func (f *File) know(name string, address uint64, err error) {
	s := symbol{address: address}
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
			f.know(name, 0, err)
		case found.ambiguous:
			f.know(name, 0, ErrSymbolAmbiguous)
		case found.defined:
			f.know(name, found.address, nil)
		default:
			left = append(left, name)
		}
	}
	return left
}
