// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"

	"github.com/gousdt/gousdt/internal/elffile"
)

// IsProgram reports whether the file is a program and not a library. It is one
// of the methods that [argspec.Decode] wants of a file, as are Header and
// Symbol.
//
// [argspec.Decode]: https://pkg.go.dev/github.com/gousdt/gousdt/argspec#Decode
func (f *File) IsProgram() bool { return f.read().IsProgram() }

// Symbol returns the symbol that is defined under a name: in .symtab, else in
// .dynsym. No other file is read: one of package argspec's interface File may
// also search the separate debug file. The Value is a virtual address, as
// linked, or for a thread-local variable (STT_TLS) the offset in the memory of
// these. Symbol fails if the name is not defined, is defined at several
// addresses, or the tables are malformed or too large.
//
// The symbol _GLOBAL_OFFSET_TABLE_ has the value of DT_PLTGOT, if the file has
// that, also without a symbol table.
//
// The first call searches for all symbols that the arguments of the file's
// probes name: one search takes hardly longer for many names than for one. Each
// other name takes a search of its own.
func (f *File) Symbol(name string) (elf.Symbol, error) {
	if name == elffile.GOT {
		return f.read().GOTSymbol()
	}
	f.searched.Do(func() {
		f.read().FindSymbols(append(elffile.ArgumentWords(f.arguments), name))
	})
	return f.read().Symbol(name)
}

// arguments yields those of all sites.
func (f *File) arguments(yield func(arguments string) bool) {
	for site := range f.Sites() {
		if !yield(site.Arguments) {
			return
		}
	}
}
