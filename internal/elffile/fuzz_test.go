// SPDX-License-Identifier: BSD-2-Clause

package elffile

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

// addSeeds adds files of all classes and byte orders, and real ones.
func addSeeds(f *testing.F, add func(contents []byte)) {
	for _, class := range []elf.Class{elf.ELFCLASS32, elf.ELFCLASS64} {
		for _, order := range []elfimage.ByteOrder{binary.LittleEndian, binary.BigEndian} {
			im := newImage(class, order)
			im.Page = 0x180 // fuzzing small files is faster
			im.AddBase()
			im.Segments[1].Data = append([]byte("\x00libc.so\x00"), make([]byte, 32)...)
			im.AddDynamic(uint64(elf.DT_NEEDED), 1, uint64(elf.DT_STRTAB), dataAddress,
				uint64(elf.DT_STRSZ), 9, 0, 0)
			im.Sections = append(im.Sections, elfimage.Section{
				Name:  ".note.gnu.build-id",
				Kind:  elf.SHT_NOTE,
				Align: 4,
				Data:  im.RawNote(buildIDOwner, buildIDType, []byte{1, 2, 3}, 4),
			})
			im.AddSymbols(elf.SHT_SYMTAB, "",
				elfimage.NewSymbol("main", codeAddress, elf.STT_FUNC, 1))
			add(im.Bytes())
			im.Extended = true
			add(im.Bytes())
		}
	}
	for _, name := range []string{"s390x.so", "s390x.so.debug", "i386.exe"} {
		b, err := os.ReadFile(filepath.Join("../../elfnote/testdata", name))
		qt.Assert(f, qt.IsNil(err))
		add(b)
	}
}

// FuzzFile reads anything as a file: whatever it says, there is no panic, and
// what is allocated is in proportion to its size.
func FuzzFile(f *testing.F) {
	addSeeds(f, func(contents []byte) { f.Add(contents, "main", uint64(codeAddress)) })
	f.Fuzz(func(t *testing.T, contents []byte, symbol string, address uint64) {
		file, err := New(bytes.NewReader(contents))
		if err != nil {
			if file != nil {
				t.Error("an error and a file")
			}
			return
		}
		file.Segment(address, 1, 0)
		if id, err := file.BuildID(); (err != nil) != (id == "") {
			t.Errorf("build ID %q: %v", id, err)
		}
		_ = file.EachDynamic(func(elf.DynTag, uint64) {})
		if got, err := file.GOTSymbol(); err != nil && got.Value != 0 {
			t.Error("an error and a global offset table")
		}
		for _, s := range append(file.ProbeNotes, file.Section(".eh_frame")) {
			b, err := file.ReadRange(s.Offset, s.Size)
			if err == nil && uint64(len(b)) != s.Size || err != nil && b != nil {
				t.Errorf("%d bytes of %d: %v", len(b), s.Size, err)
			}
		}
		checkSymbol(t, file, contents, symbol)
	})
}

// checkSymbol checks that a symbol that is searched for alone is the same when
// it is found among others.
func checkSymbol(t *testing.T, f *File, contents []byte, symbol string) {
	alone, err := f.Symbol(symbol)
	if err != nil && alone != (elf.Symbol{}) {
		t.Error("an error and a symbol")
	}
	other, openErr := New(bytes.NewReader(contents))
	if openErr != nil {
		t.Fatal(openErr)
	}
	other.FindSymbols([]string{"r", symbol, "x" + symbol, "counter", symbol})
	together, errTogether := other.Symbol(symbol)
	if err == nil && errTogether == nil && alone != together {
		t.Errorf("%+v alone, %+v together", alone, together)
	}
}

// FuzzSymbolSearch searches anything for names, through buffers of which they
// cross the ends.
func FuzzSymbolSearch(f *testing.F) {
	f.Add("main\x00large_counter\x00", "counter", "main", uint16(1))
	f.Add("a\x00a\x00aa\x00", "a", "aa", uint16(3))
	f.Add(strings.Repeat("z", 100)+"\x00z\x00", "z", "zz", uint16(ChunkSize-64))
	f.Fuzz(func(t *testing.T, table, first, second string, padding uint16) {
		// Each string, and what it ends in, defines a symbol at its place.
		im := newImage64()
		names := "\x00" + strings.Repeat("-", int(padding)) + "\x00" + table + "\x00"
		im.AddSymbols(elf.SHT_SYMTAB, "")
		symbols := im.Sections[1].Data
		start := len(names) - len(table) - 1
		places := min(len(table), 1000)
		for place := range places {
			symbols = im.Order.AppendUint32(symbols, uint32(start+place))
			symbols = append(symbols, byte(elf.STT_OBJECT), 0, 1, 0)
			symbols = im.Words(symbols, uint64(place), 0)
		}
		im.Sections[1].Data, im.Sections[2].Data = symbols, []byte(names)
		file := im.open(t)
		file.FindSymbols([]string{first, second})
		for _, name := range []string{first, second} {
			var defined []uint64
			for place := range places {
				end := strings.IndexByte(names[start+place:], 0)
				if names[start+place:][:end] == name && name != "" {
					defined = append(defined, uint64(place))
				}
			}
			symbol, err := file.Symbol(name)
			switch {
			case len(name) > MaxSymbolName:
			case len(defined) == 1 && (err != nil || symbol.Value != defined[0]):
				t.Errorf("%q: %#x, %v, not %#x", name, symbol.Value, err, defined[0])
			case len(defined) != 1 && err == nil:
				t.Errorf("%q: %#x, and is defined at %v", name, symbol.Value, defined)
			}
		}
	})
}
