// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/gousdt/gousdt/internal/elffile"
)

// symbols is the state of searching for the symbols of a file.
type symbols struct {
	mutex  sync.Mutex
	words  []string // see argumentWords
	listed bool     // words is set

	debug    *elffile.File // the separate debug file, nil if there is none
	find     func(*File) (path string, err error)
	searched bool  // debug is set, or there is none
	why      error // it was not searched for
	found    bool  // debug was searched for the words
	closed   bool
}

// IsProgram reports whether the file is a program and not a library. It is one
// of the methods that [argspec.Decode] wants of a file, as are Header, Symbol
// and PLTGOT.
//
// [argspec.Decode]: https://pkg.go.dev/github.com/gousdt/gousdt/argspec#Decode
func (f *File) IsProgram() bool { return f.read().IsProgram() }

// Symbol returns the symbol that is defined under a name: in .symtab, else in
// .dynsym, else in the separate debug file that [File.SearchDebugFile] finds.
// Without that, no other file is read. The Value is a virtual address, as
// linked, or for a thread-local variable (STT_TLS) the offset in the memory of
// these. Symbol fails if the name is not defined, is defined at several
// addresses, or the tables are malformed or too large.
//
// The first call searches for all symbols that the arguments of the file's
// probes name: one search takes hardly longer for many names than for one. Each
// other name takes a search of its own.
func (f *File) Symbol(name string) (elf.Symbol, error) {
	s := &f.symbols
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if !s.listed {
		s.words, s.listed = f.argumentWords(), true
		f.read().FindSymbols(append(slices.Clip(s.words), name))
	}
	symbol, err := f.read().Symbol(name)
	if !errors.Is(err, elffile.ErrSymbolNotFound) {
		return symbol, err
	}
	if !f.openDebug() {
		return symbol, f.unsearched(err)
	}
	if !s.found {
		s.found = true
		s.debug.FindSymbols(slices.DeleteFunc(slices.Clone(s.words), func(name string) bool {
			_, err := f.read().Symbol(name)
			return !errors.Is(err, elffile.ErrSymbolNotFound)
		}))
	}
	return s.debug.Symbol(name)
}

// PLTGOT returns the address of the procedure linkage table's part of the
// global offset table (DT_PLTGOT), of the file, else of its debug file. It
// fails if there is none.
func (f *File) PLTGOT() (uint64, error) {
	address, err := f.read().PLTGOT()
	if !errors.Is(err, elffile.ErrNoPLTGOT) {
		return address, err
	}
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	if f.openDebug() {
		return f.symbols.debug.PLTGOT()
	}
	return address, err
}

// DebugFile returns the separate debug file that [File.SearchDebugFile] finds.
// Close closes it. The error wraps [fs.ErrNotExist] if there is none, or is
// that of finding it.
func (f *File) DebugFile() (*os.File, error) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	switch {
	case f.openDebug():
		return f.symbols.debug.OSFile(), nil
	case f.symbols.why != nil:
		return nil, f.symbols.why
	}
	return nil, fmt.Errorf("debug file: %w", fs.ErrNotExist)
}

// unsearched adds to an error why no debug file was searched for.
func (f *File) unsearched(err error) error {
	if f.symbols.why == nil {
		return err
	}
	return fmt.Errorf("%w; %w", err, f.symbols.why)
}

// SearchDebugFile has find called, once, when the file lacks a symbol that an
// argument names, unless it has a debug file already. find returns the path of
// the file's separate debug file, or "" if there is none. Its error is added to
// those of symbols: it says why the debug file is not searched for. A debug
// file that cannot be used counts as missing: one of another build, for
// example. find must not ask the file for symbols.
//
// Prelink moves a file, but not its debug file. Symbols of the debug file are
// given the addresses that they have in f: moved by as much as the section
// .stapsdt.base, or the first PT_LOAD segment if one of the files has no such
// section.
//
// FindDebugFile of package stack is a find for installed debug files. Without
// SearchDebugFile no other file is read. So a caller that must not read files
// for a file of another user does not call it.
func (f *File) SearchDebugFile(find func(*File) (path string, err error)) {
	f.symbols.mutex.Lock()
	defer f.symbols.mutex.Unlock()
	f.symbols.find = find
	f.symbols.searched = f.symbols.debug != nil
}

// openDebug reports whether there is a debug file, and opens it first. One that
// cannot be used counts as none: then the symbol is missing.
func (f *File) openDebug() bool {
	s := &f.symbols
	if s.find != nil && !s.searched && !s.closed && !f.IsDebugFile() {
		s.searched = true
		path := ""
		if path, s.why = s.find(f); path != "" {
			s.debug, _ = f.read().OpenDebugFile(path)
		}
	}
	return s.debug != nil
}

// close closes the debug file. Symbols found in it stay known.
func (s *symbols) close() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.closed = true
	if s.debug != nil {
		s.debug.Close()
	}
}

// argumentWords returns the words in the arguments of all probes that may be
// names of symbols: each one once, maxArgumentWords at most. It does not know
// the machine's syntax, so that registers without a sigil are among them.
func (f *File) argumentWords() []string {
	var words []string
	known := make(map[string]bool)
	last := ""
	for site := range f.Sites() {
		if site.Arguments == last {
			continue // many sites in a row often have the same arguments
		}
		last = site.Arguments
		for word := range symbolWords(last) {
			if len(word) < leastWord || known[word] {
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

// symbolWords yields the words of a text that may be names of symbols. A word
// that begins with a percent sign or a digit is a register or a number.
func symbolWords(text string) iter.Seq[string] {
	return func(yield func(word string) bool) {
		for word := range strings.FieldsFuncSeq(text, func(c rune) bool {
			return c < 0x80 && !isWordPart(byte(c)) && c != '$' && c != '%'
		}) {
			word = strings.TrimLeft(word, "$")
			if word != "" && word[0] != '%' && (word[0] < '0' || word[0] > '9') && !yield(word) {
				return
			}
		}
	}
}

// isWordPart reports whether GNU as accepts a byte in the names of symbols. It
// also accepts a dollar sign, which at the start of a word is a sigil.
func isWordPart(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '_' ||
		c == '.' || c >= 0x80
}
