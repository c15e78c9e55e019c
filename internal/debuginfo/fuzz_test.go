// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
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

// FuzzDebugFile reads anything as the debug file of anything.
func FuzzDebugFile(f *testing.F) {
	var seeds [][]byte
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		im := newImage(class, binary.LittleEndian)
		im.Page = 0x180 // fuzzing small files is faster
		im.AddBase()
		addBuildID(im, "abcdef")
		im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", codeAddress, elf.STT_FUNC, 1))
		seeds = append(seeds, im.Bytes())
	}
	for _, name := range []string{"s390x.so", "s390x.so.debug", "i386.exe"} {
		b, err := os.ReadFile(filepath.Join("../../elfnote/testdata", name))
		qt.Assert(f, qt.IsNil(err))
		seeds = append(seeds, b)
	}
	for i, contents := range seeds {
		f.Add(contents, seeds[(i+1)%len(seeds)], "main")
		f.Add(contents, contents, "main")
	}
	f.Fuzz(func(t *testing.T, contents, debugContents []byte, symbol string) {
		file, err := New(bytes.NewReader(contents))
		if err != nil {
			return
		}
		debug, err := New(bytes.NewReader(debugContents))
		if err != nil {
			return
		}
		if err := file.adopt(debug.File); err != nil {
			return
		}
		id, _ := file.BuildID() // "" if there is none
		other, _ := debug.BuildID()
		if id != "" && other != "" && id != other {
			t.Errorf("a debug file of build %s for one of %s", other, id)
		}
		found, err := debug.Symbol(symbol)
		if err != nil {
			return
		}
		alone, err := New(bytes.NewReader(debugContents))
		if err != nil {
			t.Fatal(err)
		}
		linked, err := alone.Symbol(symbol)
		if err != nil || found.Value != linked.Value &&
			found.Value != debug.Words.Moved(linked.Value, debug.Moved) {
			t.Errorf("%#x, not %#x (%v) moved by %#x", found.Value, linked.Value, err,
				debug.Moved)
		}
	})
}
