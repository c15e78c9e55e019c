// SPDX-License-Identifier: BSD-2-Clause

package elffile

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

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestSymbol(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		const here, common, missing = 1, elf.SHN_COMMON, elf.SHN_UNDEF
		im.AddSymbols(elf.SHT_DYNSYM, "",
			elfimage.NewSymbol("counter", 0x99, elf.STT_OBJECT, here),
			elfimage.NewSymbol("dynamic", 0x50, elf.STT_OBJECT, here),
			elfimage.NewSymbol("both", 0x51, elf.STT_OBJECT, here),
			elfimage.NewSymbol("imported", 0, elf.STT_OBJECT, missing),
		)
		im.AddSymbols(elf.SHT_SYMTAB, "large_counter\x00",
			elfimage.NewSymbol("large_counter", 0x10, elf.STT_OBJECT, here),
			elfimage.NewSymbol("counter", 0x20, elf.STT_OBJECT, here), // ends large_counter
			elfimage.NewSymbol("unter", 0x30, elf.STT_NOTYPE, here),
			elfimage.NewSymbol("twice", 0x40, elf.STT_OBJECT, here),
			elfimage.NewSymbol("twice", 0x40, elf.STT_NOTYPE, here),
			elfimage.NewSymbol("ambiguous", 0x40, elf.STT_OBJECT, here),
			elfimage.NewSymbol("ambiguous", 0x48, elf.STT_OBJECT, here),
			elfimage.NewSymbol("defined_once", 0, elf.STT_OBJECT, missing),
			elfimage.NewSymbol("defined_once", 0x60, elf.STT_OBJECT, here),
			elfimage.NewSymbol("file", 0, elf.STT_FILE, elf.SHN_ABS),
			elfimage.NewSymbol("section", 0x70, elf.STT_SECTION, here),
			elfimage.NewSymbol("thread", 0x71, elf.STT_TLS, here),
			elfimage.NewSymbol("common", 0x72, elf.STT_OBJECT, common),
			elfimage.NewSymbol("both", 0x52, elf.STT_OBJECT, here),
			elfimage.NewSymbol("zero", 0, elf.STT_OBJECT, here),
			elfimage.NewSymbol("absolute", 0x80, elf.STT_NOTYPE, elf.SHN_ABS),
			elfimage.NewSymbol("function", 0x81, elf.STT_FUNC, here),
			elfimage.NewSymbol("ns::name\xff\x1b", 0x90, elf.STT_OBJECT, here),
		)
		defined := map[string]uint64{
			"large_counter": 0x10, "counter": 0x20, "unter": 0x30, "twice": 0x40,
			"defined_once": 0x60,
			"dynamic":      0x50, "both": 0x52, "zero": 0, "absolute": 0x80, "thread": 0x71,
			"function": 0x81, "ns::name\xff\x1b": 0x90,
		}
		undefined := []string{"", "nothing", "r", "ambig", "imported", "file", "section", "common",
			"counter\x00twice",
			"large_counter2", strings.Repeat("long", MaxSymbolName/4)}
		one, all := im.open(t), im.open(t)
		names := append(slices.Collect(maps.Keys(defined)), undefined...)
		all.FindSymbols(append(names, "ambiguous", "counter", strings.Repeat("n", MaxSymbolName+1)))
		work := all.symbols.work
		for _, f := range []*File{one, all, one} {
			for name, want := range defined {
				got, err := f.Symbol(name)
				qt.Assert(t, qt.IsNil(err), qt.Commentf(name))
				qt.Assert(t, qt.Equals(got.Value, want), qt.Commentf(name))
			}
			for _, name := range undefined {
				_, err := f.Symbol(name)
				qt.Assert(t, qt.ErrorIs(err, ErrSymbolNotFound), qt.Commentf(name))
			}
			_, err := f.Symbol("ambiguous")
			qt.Assert(t, qt.ErrorIs(err, ErrSymbolAmbiguous))
			qt.Assert(t, qt.ErrorMatches(err, `symbol "ambiguous": defined at several addresses`))
			_, err = f.Symbol(strings.Repeat("n", MaxSymbolName+1))
			qt.Assert(t, qt.ErrorIs(err, ErrTooLarge))
		}
		qt.Assert(t, qt.Equals(all.symbols.work, work),
			qt.Commentf("nothing was left to be searched for"))
	})
}

func TestSymbolHasTypeAndVisibility(t *testing.T) {
	everyClass(t, func(t *testing.T, im *image) {
		info := func(bind elf.SymBind, kind elf.SymType) byte { return elf.ST_INFO(bind, kind) }
		function := elfimage.NewSymbol("function", 0x10, elf.STT_FUNC, 1)
		alias := function
		alias.Bind, alias.Other = elf.STB_GLOBAL, byte(elf.STV_PROTECTED)
		variable := elfimage.NewSymbol("variable", 0x18, elf.STT_TLS, 2)
		clash := elfimage.NewSymbol("clash", 0x20, elf.STT_TLS, 2)
		clashing := elfimage.NewSymbol("clash", 0x20, elf.STT_OBJECT, 2)
		im.AddSymbols(elf.SHT_SYMTAB, "", function, alias, function, variable, clash, clashing)
		f := im.open(t)

		got, err := f.Symbol("function")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, elf.Symbol{
			Name:    "function",
			Info:    info(elf.STB_GLOBAL, elf.STT_FUNC),
			Other:   byte(elf.STV_PROTECTED),
			Section: 1, Value: 0x10, Size: 8,
		}))
		f.Moved = 0x1000
		got, err = f.Symbol("variable")
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(got, elf.Symbol{
			Name:    "variable",
			Info:    info(elf.STB_LOCAL, elf.STT_TLS),
			Section: 2,
			Value:   0x18,
			Size:    8,
		}))
		_, err = f.Symbol("clash")
		qt.Check(t, qt.ErrorIs(err, ErrSymbolAmbiguous))
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
	for _, end := range []int{ChunkSize, 2 * ChunkSize} {
		table.WriteString(strings.Repeat("z", end-100-table.Len()) + "\x00")
		for i := range 20 {
			name := fmt.Sprintf("symbol_%d_%d", end, i)
			names = append(names, name)
			table.WriteString(name + "\x00")
		}
	}
	// So does the end of one that is longer than a chunk.
	table.WriteString(strings.Repeat("z", 2*ChunkSize-MaxSymbolName))
	names = append(names, strings.Repeat("n", MaxSymbolName))
	table.WriteString(names[len(names)-1] + "\x00")
	var symbols []elfimage.Symbol
	for i := range 10_000 { // more than a chunk of symbols
		symbols = append(symbols, elfimage.NewSymbol(names[i%len(names)], uint64(i%len(names)),
			elf.STT_OBJECT, 1))
	}
	im.AddSymbols(elf.SHT_SYMTAB, table.String(), symbols...)
	one, all := im.open(t), im.open(t)
	all.FindSymbols(names)
	for _, f := range []*File{one, all} {
		for i, name := range names {
			got, err := f.Symbol(name)
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.Equals(got.Value, uint64(i)))
		}
	}
}

func TestSymbolTablesThatCannotBeRead(t *testing.T) {
	for _, test := range []struct {
		name   string
		change func(symbols, strings *elfimage.Section)
		want   error
	}{
		{"size of a symbol", func(symbols, strings *elfimage.Section) { symbols.Record = 16 },
			ErrMalformed},
		{"size of a symbol 0", func(symbols, strings *elfimage.Section) { symbols.Record = 0 },
			ErrMalformed},
		{"no section of names", func(symbols, strings *elfimage.Section) { symbols.Link = 99 },
			ErrMalformed},
		{"compressed",
			func(symbols, strings *elfimage.Section) { symbols.Flags = elf.SHF_COMPRESSED },
			ErrCompressed},
		{"compressed names",
			func(symbols, strings *elfimage.Section) { strings.Flags = elf.SHF_COMPRESSED },
			ErrCompressed},
		{"symbols past the end",
			func(symbols,
				strings *elfimage.Section) {
				symbols.Size = elfimage.Ptr[uint64](1 << 20)
			}, ErrTruncated},
		{"names past the end",
			func(symbols,
				strings *elfimage.Section) {
				strings.Size = elfimage.Ptr[uint64](1 << 20)
			}, ErrTruncated},
		{"names past all files",
			func(symbols,
				strings *elfimage.Section) {
				strings.Offset = elfimage.Ptr[uint64](1<<64 - 8)
			}, ErrTruncated},
		{"symbols wrap around",
			func(symbols,
				strings *elfimage.Section) {
				symbols.Offset = elfimage.Ptr[uint64](1<<64 - 8)
			}, ErrMalformed},
		{"large symbols",
			func(symbols,
				strings *elfimage.Section) {
				symbols.Size = elfimage.Ptr[uint64](1 << 40)
			}, ErrTooLarge},
		{"large names",
			func(symbols,
				strings *elfimage.Section) {
				strings.Size = elfimage.Ptr[uint64](1<<64 - 1)
			}, ErrTooLarge},
		{"names without content",
			func(symbols, strings *elfimage.Section) { strings.Kind = elf.SHT_NOBITS },
			ErrSymbolNotFound},
		{"no symbols", func(symbols, strings *elfimage.Section) { symbols.Data = nil },
			ErrSymbolNotFound},
	} {
		t.Run(test.name, func(t *testing.T) {
			im := newImage64()
			im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
			test.change(&im.Sections[1], &im.Sections[2])
			_, err := im.open(t).Symbol("main")
			qt.Assert(t, qt.ErrorIs(err, test.want))
		})
	}
}

func TestSymbolsAreBoundedTogether(t *testing.T) {
	im := newImage64()
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
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

// An untrusted file makes each of many look-ups take little memory, one by one
// and at once.
func TestSymbolsManyLookUpsAreCheap(t *testing.T) {
	const count = 1 << 16
	limit := uint64(2048)
	if hasRaceDetector {
		limit = 64 << 10 // a buffer for each
	}
	im := newImage64()
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
	im.AddSymbols(elf.SHT_DYNSYM, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
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
		qt.Check(t, qt.IsTrue(each < limit), qt.Commentf("%d bytes for each", each))
		_, err := f.Symbol(names[count-1])
		qt.Check(t, qt.ErrorIs(err, ErrSymbolNotFound), qt.Commentf("is within the bounds"))
	}
}

// A program of half a million symbols has thousands of names found at once.
func TestSymbolsOfALargeTable(t *testing.T) {
	const count = 500_000
	im := newImage64()
	var strings bytes.Buffer
	symbols := make([]byte, elfimage.SymbolSize64)
	strings.WriteByte(0)
	var names []string
	for i := range count {
		name := fmt.Sprintf("%0*d_symbol", 8+i%50, i) // of many lengths
		if i%100 == 0 {
			names = append(names, name)
		}
		symbols = im.Order.AppendUint32(symbols, uint32(strings.Len()))
		symbols = append(symbols, byte(elf.STT_FUNC), 0, 1, 0)
		symbols = im.Words(symbols, uint64(i), 8)
		strings.WriteString(name + "\x00")
	}
	im.AddSymbols(elf.SHT_SYMTAB, "")
	im.Sections[1].Data, im.Sections[2].Data = symbols, strings.Bytes()
	f := im.open(t)
	f.FindSymbols(names)
	for i, name := range names {
		symbol, err := f.Symbol(name)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(symbol.Value, uint64(100*i)))
	}
}

func TestWordsThatMayBeSymbols(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"8@%rdi -4@%esi 4@-1608(%rbp)": nil,
		"-4f@%xmm0 8@$-1 8@8(%rax,%r8d,4) 4@%r10d": nil,
		"8@counter(%rip)":                          {"counter"},
		"8@-8+_xy(%rip)":                           {"_xy"},
		"8@$.data":                                 {".data"},
		"8@$\xc3\xa4b":                             {"\xc3\xa4b"},
		"4@%lo(var)(a4)":                           {"var"}, // a4 is too short
		"8@x10":                                    {"x10"}, // a register of arm64
		"8@%rax 8@table(,%rdi,4)":                  {"table"},
		"8@a$b+0x10(%rip)":                         {"a$b"},
		"4@xyz@GOTOFF(%ebx)":                       {"xyz", "GOTOFF"},
		`8@"with blank"(%rip) 8@"open(%rip)`:       {"with", "blank", "open"},
		`8@""+xyz 8@xyz`:                           {"xyz"},
		"8@1f(%rip)":                               nil,
	} {
		got := ArgumentWords(slices.Values([]string{text}))
		qt.Check(t, qt.IsTrue(slices.Equal(got, want)), qt.Commentf("%q: %q", text, got))
	}
}
