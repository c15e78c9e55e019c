// SPDX-License-Identifier: BSD-2-Clause

package profile

import "github.com/gousdt/gousdt/internal/elffile"

// function returns the name of the function at an offset in the file, and the
// offset where it begins.
func (f *file) function(offset uint64) (name string, start uint64, ok bool) {
	f.readFunctions()
	for _, s := range f.segments {
		if s.Offset <= offset && offset-s.Offset < s.FileSize {
			function, ok := f.functions.At(s.Address + (offset - s.Offset))
			return function.Name, function.Address - s.Address + s.Offset, ok
		}
	}
	return "", 0, false
}

// readFunctions reads the symbol tables of the file and of its separate debug
// file, if that is installed.
func (f *file) readFunctions() {
	if f.functions != nil {
		return
	}
	f.functions = new(elffile.Functions)
	if f.elf == nil {
		return
	}
	f.functions, _ = f.elf.Functions() // without those of a damaged table
	if debug, err := f.elf.OpenDebugFile(""); err == nil {
		more, _ := debug.Functions()
		f.functions.Append(more)
		debug.Close()
	}
}
