// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// FuzzFunctions reads the functions of anything: whatever it says, there is no
// panic, and what is held is in proportion to its size.
func FuzzFunctions(f *testing.F) {
	im := newImage64()
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", codeAddress, elf.STT_FUNC, 1))
	f.Add(im.Bytes(), uint64(codeAddress))
	for _, name := range []string{"s390x.so", "s390x.so.debug", "i386.exe"} {
		b, err := os.ReadFile(filepath.Join("../../elfnote/testdata", name))
		qt.Assert(f, qt.IsNil(err))
		f.Add(b, uint64(codeAddress))
	}
	f.Fuzz(func(t *testing.T, contents []byte, address uint64) {
		if file, err := New(bytes.NewReader(contents)); err == nil {
			checkFunctions(t, file, len(contents), address)
		}
	})
}

// checkFunctions checks what holds for the functions of any file.
func checkFunctions(t *testing.T, f *File, size int, address uint64) {
	fs, _ := f.Functions() // of the other table where one cannot be read
	if fs.Size() > 2*size {
		t.Errorf("%d bytes of a file of %d are held", fs.Size(), size)
	}
	function, ok := fs.At(address)
	if ok && (function.Name == "" || strings.Contains(function.Name, "\x00") ||
		function.Address > address) {
		t.Errorf("%+v at %#x", function, address)
	}
	if !ok {
		return
	}
	if same, ok := fs.At(function.Address); !ok || same != function {
		t.Errorf("%+v where %+v begins", same, function)
	}
}
