// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// functionAt returns the name of the function at an address, "" if there is
// none.
func functionAt(fs *Functions, address uint64) string {
	f, ok := fs.At(address)
	if ok != (f.Name != "") {
		return "a name or no function, but both"
	}
	return f.Name
}

func TestFunctions(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		const here, missing = 1, elf.SHN_UNDEF
		im.AddSymbols(elf.SHT_DYNSYM, "",
			elfimage.NewSymbol("exported", 0x200, elf.STT_FUNC, here),
			elfimage.NewSymbol("outer", 0x100, elf.STT_FUNC, here),
			elfimage.NewSymbol("imported", 0x300, elf.STT_FUNC, missing),
		)
		im.AddSymbols(elf.SHT_SYMTAB, "",
			elfimage.NewSymbol("first", 0x100, elf.STT_FUNC, here),
			elfimage.NewSymbol("alias", 0x100, elf.STT_FUNC, here),
			elfimage.NewSymbol("resolved", 0x140, elf.STT_GNU_IFUNC, here),
			elfimage.NewSymbol("data", 0x110, elf.STT_OBJECT, here),
			elfimage.NewSymbol("label", 0x118, elf.STT_NOTYPE, here),
			elfimage.NewSymbol("before", 0x80, elf.STT_FUNC, here),
			elfimage.NewSymbol("", 0x180, elf.STT_FUNC, here),
		)
		fs, err := im.open(t).Functions()
		qt.Assert(t, qt.IsNil(err))
		for address, want := range map[uint64]string{
			0x7f: "", 0x80: "before", 0x87: "before", 0x88: "", // of 8 bytes
			0x100: "first", 0x107: "first", 0x108: "", 0x110: "", 0x118: "",
			0x140: "resolved", 0x180: "", 0x200: "exported", 0x300: "", 1<<64 - 1: "",
		} {
			qt.Check(t, qt.Equals(functionAt(fs, address), want), qt.Commentf("%#x", address))
		}
		f, _ := fs.At(0x207)
		qt.Check(t, qt.Equals(f, Function{"exported", 0x200}))
		qt.Check(t, qt.IsTrue(fs.Size() > 0))
	})
	t.Run("without a size", func(t *testing.T) {
		im := newImage64()
		im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("start", 0x100, elf.STT_FUNC, 1),
			elfimage.NewSymbol("text", 0x200, elf.STT_FUNC, 1),
			elfimage.NewSymbol("first", 0x200, elf.STT_FUNC, 1))
		for n := 1; n <= 2; n++ {
			clear(im.Sections[1].Data[24*n+16:][:8])
		}
		fs, err := im.open(t).Functions()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(functionAt(fs, 0x100), "start"))
		qt.Check(t, qt.Equals(functionAt(fs, 0x101), ""))
		// As in Go's programs, where the label comes first.
		qt.Check(t, qt.Equals(functionAt(fs, 0x200), "first"))
		qt.Check(t, qt.Equals(functionAt(fs, 0x207), "first"))
	})
	t.Run("without symbols", func(t *testing.T) {
		fs, err := newImage64().open(t).Functions()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(functionAt(fs, codeAddress), ""))
		qt.Check(t, qt.Equals(fs.Size(), 0))
	})
	t.Run("of the debug file have the addresses of the file", func(t *testing.T) {
		im, debug := newImage64(), newImage64()
		im.Segments[0].Address += 0x1000 // as prelink does
		im.AddSymbols(elf.SHT_DYNSYM, "", elfimage.NewSymbol("exported", 0x1100, elf.STT_FUNC, 1))
		debug.AddSymbols(elf.SHT_SYMTAB, "",
			elfimage.NewSymbol("other_name", 0x100, elf.STT_FUNC, 1), elfimage.NewSymbol("local",
				0x200, elf.STT_FUNC, 1))
		path := filepath.Join(t.TempDir(), "debug")
		qt.Assert(t, qt.IsNil(os.WriteFile(path, debug.Bytes(), 0o600)))
		f := im.open(t)
		fs, err := f.Functions()
		qt.Assert(t, qt.IsNil(err))
		opened, err := f.FindDebugFile(path)
		qt.Assert(t, qt.IsNil(err))
		defer opened.Close()
		more, err := opened.Functions()
		qt.Assert(t, qt.IsNil(err))
		fs.Append(more)
		qt.Check(t, qt.Equals(functionAt(fs, 0x1100), "exported"))
		qt.Check(t, qt.Equals(functionAt(fs, 0x1200), "local"))
		qt.Check(t, qt.Equals(functionAt(fs, 0x200), ""))
	})
}

// Debug files may have their tables compressed.
func TestFunctionsOfCompressedTables(t *testing.T) {
	more := ""
	for n := range 20_000 { // of more than a block
		more += fmt.Sprint(n*n, "\x00")
	}
	everyClass(t, func(t *testing.T, im *image) {
		for _, kind := range []elf.CompressionType{elf.COMPRESS_ZLIB, elf.COMPRESS_ZSTD} {
			im.Sections = im.Sections[:1]
			im.AddSymbols(elf.SHT_SYMTAB, more,
				elfimage.NewSymbol("main", 0x100, elf.STT_FUNC, 1))
			for i := range im.Sections[1:] {
				im.Compress(&im.Sections[1+i], kind)
			}
			f := im.open(t)
			fs, err := f.Functions()
			qt.Assert(t, qt.IsNil(err))
			qt.Check(t, qt.Equals(functionAt(fs, 0x100), "main"))
			qt.Check(t, qt.IsTrue(f.FunctionBytes() >= fs.Size()))
		}
	})
}

func TestFunctionsRefuses(t *testing.T) {
	const maxSymbols, maxSymbolNames = 16 << 20, 128 << 20 // of package elffile
	for _, test := range []struct {
		name   string
		change func(symbols, strings *elfimage.Section)
		want   error
		text   string
	}{
		{"size of a symbol", func(symbols, strings *elfimage.Section) { symbols.Record = 16 },
			elffile.ErrMalformed, "functions in SHT_SYMTAB: .*"},
		{"compressed symbols",
			func(symbols, strings *elfimage.Section) { symbols.Flags = elf.SHF_COMPRESSED },
			elffile.ErrMalformed, ".*"},
		{"compressed names",
			func(symbols, strings *elfimage.Section) { strings.Flags = elf.SHF_COMPRESSED },
			elffile.ErrMalformed, ".*"},
		{"symbols that grow out of size", func(symbols, strings *elfimage.Section) {
			symbols.Data = make([]byte, 24<<10)
			newImage64().Compress(symbols, elf.COMPRESS_ZLIB)
		}, elffile.ErrTooLarge, ".*"},
		{"names that end too early", func(symbols, strings *elfimage.Section) {
			newImage64().Compress(strings, elf.COMPRESS_ZLIB)
			strings.Data = strings.Data[:len(strings.Data)-8]
		}, elffile.ErrMalformed, ".*"},
		{"symbols past the end",
			func(symbols,
				strings *elfimage.Section) {
				symbols.Size = elfimage.Ptr[uint64](1 << 20)
			}, elffile.ErrTruncated, ".*"},
		{"names past the end", func(symbols, strings *elfimage.Section) {
			strings.Size = elfimage.Ptr[uint64](maxSymbolNames)
		}, elffile.ErrTruncated, ".*: names: .*"},
		{"too many symbols", func(symbols, strings *elfimage.Section) {
			symbols.Size = elfimage.Ptr[uint64](24 * (maxSymbols + 1))
		}, elffile.ErrTooLarge, ".*: 16777217 symbols: .*"},
		{"too many names", func(symbols, strings *elfimage.Section) {
			strings.Size = elfimage.Ptr[uint64](maxSymbolNames + 1)
		}, elffile.ErrTooLarge, ".*: 134217729 bytes of names: .*"},
		{"names without content",
			func(symbols, strings *elfimage.Section) { strings.Kind = elf.SHT_NOBITS }, nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
			test.change(&im.Sections[1], &im.Sections[2])
			im.AddSymbols(elf.SHT_DYNSYM, "",
				elfimage.NewSymbol("exported", 0x100, elf.STT_FUNC, 1))
			fs, err := im.open(t).Functions()
			qt.Assert(t, qt.ErrorIs(err, test.want))
			if err != nil {
				qt.Check(t, qt.ErrorMatches(err, test.text))
			}
			qt.Check(t, qt.Equals(functionAt(fs, 0x10), ""))
			qt.Check(t, qt.Equals(functionAt(fs, 0x100), "exported"),
				qt.Commentf("the other table"))
		})
	}
}

// manyFunctions makes a file of a megabyte or so in which all functions share
// a long name, or parts of it.
func manyFunctions(count, length int) *image {
	im := newImage64()
	im.AddSymbols(elf.SHT_SYMTAB, strings.Repeat("n", length)+"\x00")
	symbols := slices.Grow(im.Sections[1].Data, 24*count)
	for i := range count {
		symbols = im.Order.AppendUint32(symbols, uint32(1+i%length))
		symbols = append(symbols, byte(elf.STT_FUNC), 0, 1, 0)
		symbols = im.Words(symbols, uint64(16*i), 16)
	}
	im.Sections[1].Data = symbols
	return im
}

// allocated returns how many bytes a function allocates.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A file must not be able to make its reader use much more memory than it has
// bytes itself.
func TestFunctionsThatShareALongName(t *testing.T) {
	const count = 30_000
	f := manyFunctions(count, 512<<10).open(t)
	size := uint64(count*24 + 512<<10)
	var fs *Functions
	bytes := allocated(func() {
		var err error
		fs, err = f.Functions()
		qt.Assert(t, qt.IsNil(err))
	})
	qt.Check(t, qt.IsTrue(bytes < 8*size), qt.Commentf("%d bytes for a file of %d", bytes, size))
	qt.Check(t, qt.IsTrue(fs.Size() < int(2*size)), qt.Commentf("%d bytes are held", fs.Size()))

	// Names so long are not returned, and what is kept of the others is little.
	bytes = allocated(func() {
		for i := range uint64(count) {
			if _, ok := fs.At(16 * i); ok {
				t.Fatal("a name")
			}
		}
	})
	qt.Check(t, qt.IsTrue(bytes < size), qt.Commentf("%d bytes for look-ups", bytes))
}

func TestFunctionsAreBounded(t *testing.T) {
	f := manyFunctions(maxFunctions+1, 100).open(t)
	_, err := f.Functions()
	qt.Check(t, qt.ErrorMatches(err, "functions in SHT_SYMTAB: more than 2097152 functions: .*"))
	qt.Check(t, qt.Equals(f.FunctionBytes(), 24*(maxFunctions+2)+102))
}
