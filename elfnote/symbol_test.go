// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// What the stripped library lacks, and its debug file has.
const strippedSymbol = "elf_guarded_semaphore"

func TestSymbolOfADebugFile(t *testing.T) {
	for _, test := range []struct {
		name string
		use  func(f *File) error
	}{
		{"that is installed",
			func(f *File) error {
				f.SearchDebugFile(finds("testdata/s390x.so.debug"))
				return nil
			}},
		{"that is searched for late", func(f *File) error {
			_, err := f.Symbol(strippedSymbol)
			qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
			f.SearchDebugFile(finds("testdata/s390x.so.debug"))
			return nil
		}},
		{"that is searched for again", func(f *File) error {
			for _, path := range []string{"", "testdata/s390x.so.debug", "/nowhere"} {
				f.SearchDebugFile(finds(path))
				_, err := f.Symbol(strippedSymbol)
				qt.Check(t, qt.Equals(err == nil, path != ""))
			}
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, err := Open("testdata/s390x.so")
			qt.Assert(t, qt.IsNil(err))
			defer f.Close()
			qt.Assert(t, qt.IsNil(test.use(f)))
			for range 2 {
				symbol, err := f.Symbol(strippedSymbol)
				qt.Assert(t, qt.IsNil(err))
				qt.Check(t, qt.Equals(symbol.Value, 0x205e))
				_, err = f.Symbol("nowhere")
				qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
			}
		})
	}
}

func TestSymbolWithoutAUsableDebugFile(t *testing.T) {
	for _, installed := range []string{"", "/nowhere/s390x.so.debug", os.DevNull,
		"testdata/arm64.o"} {
		f, err := Open("testdata/s390x.so")
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		f.SearchDebugFile(finds(installed))
		_, err = f.Symbol(strippedSymbol)
		qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
		qt.Check(t, qt.ErrorMatches(err, `symbol "elf_guarded_semaphore": not defined in the file`))
		symbol, err := f.Symbol("counter")
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(symbol.Value, 0x2050))
	}
}

// finds returns a path as that of the debug file.
func finds(path string) func(*File) (string, error) {
	return func(*File) (string, error) { return path, nil }
}

// Why a debug file is not searched for is said beside what is missing.
func TestSymbolOfADebugFileThatIsNotSearchedFor(t *testing.T) {
	f := newImage64().open(t)
	why := errors.New("it lies elsewhere")
	_, err := f.Symbol("x")
	qt.Check(t, qt.Not(qt.ErrorIs(err, why)))
	f.SearchDebugFile(func(*File) (string, error) { return "", why })
	_, err = f.Symbol("x")
	qt.Check(t, qt.ErrorIs(err, why))
	qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
	_, err = f.DebugFile()
	qt.Check(t, qt.ErrorIs(err, why))
}

// No other file is read unless the caller asks for it.
func TestSymbolWithoutBeingAsked(t *testing.T) {
	f, err := Open("testdata/s390x.so")
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	_, err = f.Symbol(strippedSymbol)
	qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
	_, err = f.DebugFile()
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
	f.SearchDebugFile(finds("testdata/s390x.so.debug"))
	debug, err := f.DebugFile()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(debug.Name(), "testdata/s390x.so.debug"))
	_, err = f.Symbol(strippedSymbol)
	qt.Check(t, qt.IsNil(err))
}

func TestFilesThatAreNoDebugFile(t *testing.T) {
	f, err := Open("testdata/s390x.so")
	qt.Assert(t, qt.IsNil(err))
	for path, want := range map[string]error{"/nowhere/s390x.so.debug": os.ErrNotExist,
		"testdata/i386.exe": elffile.ErrOtherBuildID, os.DevNull: ErrNotELF} {
		_, err := f.elf.OpenDebugFile(path)
		qt.Check(t, qt.ErrorIs(err, want))
		f.SearchDebugFile(finds(path))
		_, err = f.Symbol(strippedSymbol)
		qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
	}
	qt.Assert(t, qt.IsNil(f.Close()))
	f.SearchDebugFile(finds("testdata/s390x.so.debug"))
	_, err = f.Symbol(strippedSymbol)
	qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
}

func TestPLTGOTOfADebugFile(t *testing.T) {
	f := newImage64().open(t)
	_, err := f.PLTGOT()
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrNoPLTGOT))

	im := newImage64()
	im.Sections[0].Kind = elf.SHT_NOBITS
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("_GLOBAL_OFFSET_TABLE_", 0x6000,
		elf.STT_OBJECT, 1))
	path := t.TempDir() + "/debug"
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	f.SearchDebugFile(finds(path))
	defer f.Close()
	got, err := f.PLTGOT()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got, 0x6000))
}

// One search finds what all arguments name.
func TestSymbolsOfArgumentsAreFoundAtOnce(t *testing.T) {
	const count = maxArgumentWords + 10_000
	im := newImage64()
	var notes [][]byte
	for i := 0; i < count; i += 200 {
		var arguments strings.Builder
		for j := range 200 {
			fmt.Fprintf(&arguments, "8@symbol_%d(%%rip) ", i+j)
		}
		notes = append(notes, im.note(Site{Location: codeAddress + 1, Provider: "p", Name: "n",
			Arguments: arguments.String()}))
	}
	im.AddNotes(notes...)
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("symbol_7", 0x10, elf.STT_OBJECT, 1))
	f := im.open(t)
	words := f.argumentWords()
	qt.Assert(t, qt.HasLen(words, maxArgumentWords))
	symbol, err := f.Symbol("symbol_7")
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(symbol.Value, 0x10))
	// Further ones cost a search each, which is within bounds.
	for i := range count {
		if i != 7 {
			_, err = f.Symbol(fmt.Sprint("symbol_", i))
			qt.Assert(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
		}
	}
}

func TestWordsThatMayBeSymbols(t *testing.T) {
	for text, want := range map[string][]string{
		"":                             nil,
		"8@%rdi -4@%esi 4@-1608(%rbp)": nil,
		"-4f@%xmm0 8@$-1 8@8(%rax,%r8d,4) 4@%r10d": nil,
		"8@counter(%rip)":                          {"counter"},
		"8@-8+_x(%rip)":                            {"_x"},
		"8@$.data":                                 {".data"},
		"8@$\xc3\xa4":                              {"\xc3\xa4"},
		"4@%lo(x)(a4)":                             {"x", "a4"},
		"8@x0":                                     {"x0"}, // a register of arm64
		"8@%rax 8@table(,%rdi,4)":                  {"table"},
		"8@a$b+0x10(%rip)":                         {"a$b"},
		"4@x@GOTOFF(%ebx)":                         {"x", "GOTOFF"},
		`8@"with blank"(%rip) 8@"open(%rip)`:       {"with", "blank", "open"},
		`8@""+x`:                                   {"x"},
		"8@1f(%rip)":                               nil,
	} {
		got := slices.Collect(symbolWords(text))
		qt.Check(t, qt.IsTrue(slices.Equal(got, want)), qt.Commentf("%q: %q", text, got))
	}
}
