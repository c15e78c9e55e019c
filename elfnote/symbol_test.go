// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"bytes"
	"debug/elf"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
)

// testSymbol is a symbol of an image. Its name is taken from the string table
// where that has it, so that names share the end of longer ones.
type testSymbol struct {
	name    string
	address uint64
	kind    elf.SymType
	in      elf.SectionIndex
}

// addSymbols adds a symbol table with its strings, which start with more.
func (im *image) addSymbols(kind elf.SectionType, more string, symbols ...testSymbol) {
	strings := []byte("\x00" + more)
	data := make([]byte, symbolSize32)
	if im.wide() {
		data = make([]byte, symbolSize64)
	}
	size := uint64(len(data))
	for _, s := range symbols {
		name := bytes.Index(strings, []byte(s.name+"\x00"))
		if name < 0 {
			name = len(strings)
			strings = append(strings, s.name+"\x00"...)
		}
		info := elf.ST_INFO(elf.STB_LOCAL, s.kind)
		data = im.order.AppendUint32(data, uint32(name))
		if im.wide() {
			data = append(data, info, 0)
			data = im.order.AppendUint16(data, uint16(s.in))
			data = im.words(data, s.address, 8)
		} else {
			data = im.words(data, s.address, 8)
			data = append(data, info, 0)
			data = im.order.AppendUint16(data, uint16(s.in))
		}
	}
	im.sections = append(im.sections,
		imageSection{name: ".symbols", kind: kind, record: size, data: data, link: uint32(len(im.sections) + 2)},
		imageSection{name: ".strings", kind: elf.SHT_STRTAB, data: strings})
}

func TestSymbol(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		const here, common, missing = 1, elf.SHN_COMMON, elf.SHN_UNDEF
		im.addSymbols(elf.SHT_DYNSYM, "",
			testSymbol{"counter", 0x99, elf.STT_OBJECT, here},
			testSymbol{"dynamic", 0x50, elf.STT_OBJECT, here},
			testSymbol{"both", 0x51, elf.STT_OBJECT, here},
			testSymbol{"imported", 0, elf.STT_OBJECT, missing},
		)
		im.addSymbols(elf.SHT_SYMTAB, "large_counter\x00",
			testSymbol{"large_counter", 0x10, elf.STT_OBJECT, here},
			testSymbol{"counter", 0x20, elf.STT_OBJECT, here}, // ends large_counter
			testSymbol{"unter", 0x30, elf.STT_NOTYPE, here},
			testSymbol{"twice", 0x40, elf.STT_OBJECT, here},
			testSymbol{"twice", 0x40, elf.STT_NOTYPE, here},
			testSymbol{"ambiguous", 0x40, elf.STT_OBJECT, here},
			testSymbol{"ambiguous", 0x48, elf.STT_OBJECT, here},
			testSymbol{"defined_once", 0, elf.STT_OBJECT, missing},
			testSymbol{"defined_once", 0x60, elf.STT_OBJECT, here},
			testSymbol{"file", 0, elf.STT_FILE, elf.SHN_ABS},
			testSymbol{"section", 0x70, elf.STT_SECTION, here},
			testSymbol{"thread", 0x71, elf.STT_TLS, here},
			testSymbol{"common", 0x72, elf.STT_OBJECT, common},
			testSymbol{"both", 0x52, elf.STT_OBJECT, here},
			testSymbol{"zero", 0, elf.STT_OBJECT, here},
			testSymbol{"absolute", 0x80, elf.STT_NOTYPE, elf.SHN_ABS},
			testSymbol{"function", 0x81, elf.STT_FUNC, here},
			testSymbol{"ns::name\xff\x1b", 0x90, elf.STT_OBJECT, here},
		)
		defined := map[string]uint64{
			"large_counter": 0x10, "counter": 0x20, "unter": 0x30, "twice": 0x40, "defined_once": 0x60,
			"dynamic": 0x50, "both": 0x52, "zero": 0, "absolute": 0x80, "function": 0x81, "ns::name\xff\x1b": 0x90,
		}
		undefined := []string{"", "nothing", "r", "ambig", "imported", "file", "section", "thread", "common", "counter\x00twice",
			"large_counter2", strings.Repeat("long", maxSymbolName/4)}
		one, all := im.open(t), im.open(t)
		names := append(slices.Collect(maps.Keys(defined)), undefined...)
		all.FindSymbols(append(names, "ambiguous", "counter", strings.Repeat("n", maxSymbolName+1)))
		work := all.symbols.work
		for _, f := range []*File{one, all, one} {
			for name, want := range defined {
				got, err := f.Symbol(name)
				qt.Assert(t, qt.IsNil(err), qt.Commentf(name))
				qt.Assert(t, qt.Equals(got, want), qt.Commentf(name))
			}
			for _, name := range undefined {
				_, err := f.Symbol(name)
				qt.Assert(t, qt.ErrorIs(err, ErrSymbolNotFound), qt.Commentf(name))
			}
			_, err := f.Symbol("ambiguous")
			qt.Assert(t, qt.ErrorIs(err, ErrSymbolAmbiguous))
			qt.Assert(t, qt.ErrorMatches(err, `symbol "ambiguous": defined at several addresses`))
			_, err = f.Symbol(strings.Repeat("n", maxSymbolName+1))
			qt.Assert(t, qt.ErrorIs(err, ErrTooLarge))
		}
		qt.Assert(t, qt.Equals(all.symbols.work, work), qt.Commentf("nothing was left to be searched for"))
	})
}

func TestSymbolInFileWithoutSymbols(t *testing.T) {
	_, err := newImage64().open(t).Symbol("main")
	qt.Assert(t, qt.ErrorIs(err, ErrSymbolNotFound))
	qt.Assert(t, qt.ErrorMatches(err, `symbol "main": not defined in the file`))
}

func TestSymbolNamesThatCrossChunks(t *testing.T) {
	im := newImage64()
	// Rows of names lie over the ends of the first and second chunk.
	var names []string
	var table strings.Builder
	for _, end := range []int{chunkSize, 2 * chunkSize} {
		table.WriteString(strings.Repeat("z", end-100-table.Len()) + "\x00")
		for i := range 20 {
			name := fmt.Sprintf("symbol_%d_%d", end, i)
			names = append(names, name)
			table.WriteString(name + "\x00")
		}
	}
	// So does the end of one that is longer than a chunk.
	table.WriteString(strings.Repeat("z", 2*chunkSize-maxSymbolName))
	names = append(names, strings.Repeat("n", maxSymbolName))
	table.WriteString(names[len(names)-1] + "\x00")
	var symbols []testSymbol
	for i := range 10_000 { // more than a chunk of symbols
		symbols = append(symbols, testSymbol{names[i%len(names)], uint64(i % len(names)), elf.STT_OBJECT, 1})
	}
	im.addSymbols(elf.SHT_SYMTAB, table.String(), symbols...)
	one, all := im.open(t), im.open(t)
	all.FindSymbols(names)
	for _, f := range []*File{one, all} {
		for i, name := range names {
			got, err := f.Symbol(name)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(got, uint64(i)))
		}
	}
}

func TestSymbolTablesThatCannotBeRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(symbols, strings *imageSection)
		want   error
	}{
		{"size of a symbol", func(symbols, strings *imageSection) { symbols.record = 16 }, ErrMalformed},
		{"size of a symbol 0", func(symbols, strings *imageSection) { symbols.record = 0 }, ErrMalformed},
		{"no section of names", func(symbols, strings *imageSection) { symbols.link = 99 }, ErrMalformed},
		{"compressed", func(symbols, strings *imageSection) { symbols.flags = elf.SHF_COMPRESSED }, ErrCompressed},
		{"compressed names", func(symbols, strings *imageSection) { strings.flags = elf.SHF_COMPRESSED }, ErrCompressed},
		{"symbols past the end", func(symbols, strings *imageSection) { symbols.size = ptr[uint64](1 << 20) }, ErrTruncated},
		{"names past the end", func(symbols, strings *imageSection) { strings.size = ptr[uint64](1 << 20) }, ErrTruncated},
		{"names past all files", func(symbols, strings *imageSection) { strings.offset = ptr[uint64](1<<64 - 8) }, ErrTruncated},
		{"symbols wrap around", func(symbols, strings *imageSection) { symbols.offset = ptr[uint64](1<<64 - 8) }, ErrMalformed},
		{"large symbols", func(symbols, strings *imageSection) { symbols.size = ptr[uint64](1 << 40) }, ErrTooLarge},
		{"large names", func(symbols, strings *imageSection) { strings.size = ptr[uint64](1<<64 - 1) }, ErrTooLarge},
		{"names without content", func(symbols, strings *imageSection) { strings.kind = elf.SHT_NOBITS }, ErrSymbolNotFound},
		{"no symbols", func(symbols, strings *imageSection) { symbols.data = nil }, ErrSymbolNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			im.addSymbols(elf.SHT_SYMTAB, "", testSymbol{"main", 0x10, elf.STT_FUNC, 1})
			test.change(&im.sections[1], &im.sections[2])
			_, err := im.open(t).Symbol("main")
			qt.Assert(t, qt.ErrorIs(err, test.want))
		})
	}
}

func TestLookUpsAreBoundedTogether(t *testing.T) {
	im := newImage64()
	im.addSymbols(elf.SHT_SYMTAB, "", testSymbol{"main", 0x10, elf.STT_FUNC, 1})
	f := im.open(t)
	_, err := f.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	cost := f.symbols.work

	f = im.open(t)
	f.symbols.work = maxSymbolWork - cost
	_, err = f.Symbol("main")
	qt.Assert(t, qt.IsNil(err))
	_, err = f.Symbol("another")
	qt.Assert(t, qt.ErrorIs(err, ErrTooLarge))
	_, err = f.Symbol("main") // is known
	qt.Assert(t, qt.IsNil(err))

	for left := range cost {
		f = im.open(t)
		f.symbols.work = maxSymbolWork - left
		_, err = f.Symbol("main")
		qt.Assert(t, qt.ErrorIs(err, ErrTooLarge), qt.Commentf("%d of %d left", left, cost))
	}
}

// What a stranger's file makes many look-ups take is little for each, one by
// one and at once.
func TestManyLookUpsAreCheap(t *testing.T) {
	const count = 1 << 16
	im := newImage64()
	im.addSymbols(elf.SHT_SYMTAB, "", testSymbol{"main", 0x10, elf.STT_FUNC, 1})
	im.addSymbols(elf.SHT_DYNSYM, "", testSymbol{"main", 0x10, elf.STT_FUNC, 1})
	var names []string
	for i := range count {
		names = append(names, fmt.Sprint("s", i))
	}
	for _, find := range []func(f *File){
		func(f *File) { f.FindSymbols(names) },
		func(f *File) {
			for _, name := range names {
				f.Symbol(name)
			}
		},
	} {
		f := im.open(t)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		find(f)
		runtime.ReadMemStats(&after)
		each := (after.TotalAlloc - before.TotalAlloc) / count
		qt.Check(t, qt.IsTrue(each < 2048), qt.Commentf("%d bytes for each", each))
		_, err := f.Symbol(names[count-1])
		qt.Check(t, qt.ErrorIs(err, ErrSymbolNotFound), qt.Commentf("is within the bounds"))
	}
}

// A program of half a million symbols has thousands of names found at once.
func TestManySymbolsInALargeTable(t *testing.T) {
	const count = 500_000
	im := newImage64()
	var strings bytes.Buffer
	symbols := make([]byte, symbolSize64)
	strings.WriteByte(0)
	var names []string
	for i := range count {
		name := fmt.Sprintf("%0*d_symbol", 8+i%50, i) // of many lengths
		if i%100 == 0 {
			names = append(names, name)
		}
		symbols = im.order.AppendUint32(symbols, uint32(strings.Len()))
		symbols = append(symbols, byte(elf.STT_FUNC), 0, 1, 0)
		symbols = im.words(symbols, uint64(i), 8)
		strings.WriteString(name + "\x00")
	}
	im.addSymbols(elf.SHT_SYMTAB, "")
	im.sections[1].data, im.sections[2].data = symbols, strings.Bytes()
	f := im.open(t)
	f.FindSymbols(names)
	for i, name := range names {
		address, err := f.Symbol(name)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(address, uint64(100*i)))
	}
}

func TestManyPlacesOfAName(t *testing.T) {
	im := newImage64()
	im.addSymbols(elf.SHT_SYMTAB, strings.Repeat("a\x00", maxSymbolNames+1), testSymbol{"a", 0x10, elf.STT_FUNC, 1})
	_, err := im.open(t).Symbol("a")
	qt.Assert(t, qt.ErrorIs(err, ErrTooLarge))
}
