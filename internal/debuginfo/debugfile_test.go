// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// Prelink moves a file and not its debug file.
func TestSymbolsOfADebugFileHaveTheAddressesOfTheFile(t *testing.T) {
	const distance = 0x10000
	noSegments := func(im *image) { im.Segments = nil }
	for _, test := range []struct {
		name        string
		file, debug func(im *image)
		moved       uint64
		err         error
	}{
		{"same addresses", (*image).AddBase, (*image).AddBase, 0, nil},
		{"other base", func(im *image) { im.AddBase(); im.Sections[1].Address += distance },
			(*image).AddBase, distance, nil},
		{"other base, below", (*image).AddBase,
			func(im *image) { im.AddBase(); im.Sections[1].Address += 0x20 }, ^uint64(0x20 - 1),
			nil},
		{"other base counts before segments", func(im *image) {
			im.AddBase()
			im.Segments[0].Address -= 0x1000 // made room for more headers
		}, (*image).AddBase, 0, nil},
		{"base in one of them, other segments", func(im *image) {
			im.AddBase()
			im.Segments[0].Address += distance
		}, func(im *image) {}, distance, nil},
		{"no base, other segments", func(im *image) { im.Segments[0].Address += distance },
			func(im *image) {}, distance, nil},
		{"no base, no segments of one", func(im *image) {}, noSegments, 0, ErrUnknownDistance},
		{"no base, no segments of the other", noSegments, func(im *image) {}, 0,
			ErrUnknownDistance},
		{"no base in one, no segments of the other", (*image).AddBase, noSegments, 0,
			ErrUnknownDistance},
		{"other machine", func(im *image) { im.Machine = elf.EM_AARCH64 }, func(im *image) {}, 0,
			ErrOtherBuildID},
		{"object file", func(im *image) { noSegments(im); im.Type = elf.ET_REL },
			noSegments, 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			everyClass(t, func(t *testing.T, im *image) {
				debug := newImage(im.Class, im.Order)
				debug.Sections[0].Kind = elf.SHT_NOBITS // the code
				test.file(im)
				test.debug(debug)
				debug.Sections = append(debug.Sections,
					elfimage.Section{Name: ".got.plt", Kind: elf.SHT_NOBITS, Address: 0x5000})
				debug.AddSymbols(elf.SHT_SYMTAB, "",
					elfimage.NewSymbol("counter", 0x40, elf.STT_OBJECT, 1),
					elfimage.NewSymbol("absolute", 0x50, elf.STT_NOTYPE, elf.SHN_ABS))
				path := filepath.Join(t.TempDir(), "debug")
				qt.Assert(t, qt.IsNil(os.WriteFile(path, debug.Bytes(), 0o600)))

				f, err := im.open(t).FindDebugFile(path)
				qt.Assert(t, qt.ErrorIs(err, test.err))
				if err != nil {
					qt.Assert(t,
						qt.ErrorMatches(err,
							`.*/debug: (cannot tell by how much prelink moved the file|the debug file belongs to another build): .*`))
					qt.Assert(t, qt.IsNil(f))
					return
				}
				defer f.Close()
				address := func(linked uint64) uint64 {
					if !im.Wide() {
						return uint64(uint32(linked + test.moved))
					}
					return linked + test.moved
				}
				got, err := f.Symbol("counter")
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(got.Value, address(0x40)))
				qt.Assert(t, qt.Equals(f.Moved, test.moved))
				got, err = f.Symbol("absolute")
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(got.Value, 0x50))
				table, err := f.GOTSymbol()
				qt.Assert(t, qt.IsNil(err))
				qt.Assert(t, qt.Equals(table.Value, address(0x5000)))
			})
		})
	}
}

func TestDebugFileIsFoundByBuildID(t *testing.T) {
	for _, test := range []struct {
		file string
		want error
	}{
		{"s390x.so", fs.ErrNotExist}, // is not installed
		{"arm64.o", elffile.ErrNoBuildID},
	} {
		f, err := Open("../../elfnote/testdata/" + test.file)
		qt.Assert(t, qt.IsNil(err))
		defer f.Close()
		_, err = f.FindDebugFile("")
		qt.Assert(t, qt.ErrorIs(err, test.want))
	}
}

// What the stripped library lacks, and its debug file has.
const strippedSymbol = "elf_guarded_semaphore"

func openLibrary(t *testing.T) *elfnote.File {
	f, err := elfnote.Open("../../elfnote/testdata/s390x.so")
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { f.Close() })
	return f
}

const libraryDebugFile = "../../elfnote/testdata/s390x.so.debug"

func TestSymbolOfADebugFile(t *testing.T) {
	f := openLibrary(t)
	_, err := f.Symbol(strippedSymbol)
	qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
	with := AddDebugFile(f, libraryDebugFile)
	for range 2 {
		symbol, err := with.Symbol(strippedSymbol)
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(symbol.Value, 0x205e))
		symbol, err = with.Symbol("counter") // of the file
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(symbol.Value, 0x2050))
		_, err = with.Symbol("nowhere")
		qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
	}
	debug, err := with.DebugFile()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(debug.Name(), libraryDebugFile))
	qt.Check(t, qt.IsNil(debug.Close()))

	// Names that arguments do not have take a search each, and few are made.
	for i := range maxSearches {
		_, err = with.Symbol(fmt.Sprint("n", i))
		if i < maxSearches-3 {
			qt.Assert(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
		}
	}
	qt.Check(t, qt.ErrorIs(err, elffile.ErrTooLarge))
	_, err = with.Symbol(strippedSymbol)
	qt.Check(t, qt.IsNil(err))
}

func TestSymbolWithoutAUsableDebugFile(t *testing.T) {
	for path, want := range map[string]error{"": fs.ErrNotExist, "/nowhere/x.debug": fs.ErrNotExist,
		os.DevNull: elffile.ErrNotELF, "../../elfnote/testdata/i386.exe": ErrOtherBuildID} {
		with := AddDebugFile(openLibrary(t), path)
		_, err := with.Symbol(strippedSymbol)
		qt.Check(t, qt.ErrorIs(err, elffile.ErrSymbolNotFound))
		qt.Check(t, qt.ErrorMatches(err, `symbol "elf_guarded_semaphore": not defined in the file(; .+)?`))
		qt.Check(t, qt.Equals(errors.Is(err, want), want != fs.ErrNotExist), qt.Commentf(path))
		symbol, err := with.Symbol("counter")
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(symbol.Value, 0x2050))
		_, err = with.DebugFile()
		qt.Check(t, qt.ErrorIs(err, want))
	}
	closed := openLibrary(t)
	qt.Assert(t, qt.IsNil(closed.Close()))
	_, err := AddDebugFile(closed, libraryDebugFile).DebugFile()
	qt.Check(t, qt.ErrorIs(err, fs.ErrNotExist))
}

func TestPLTGOTOfADebugFile(t *testing.T) {
	directory := t.TempDir()
	im := newImage64()
	path := filepath.Join(directory, "stripped")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	f, err := elfnote.Open(path)
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	_, err = AddDebugFile(f, "").Symbol(elffile.GOT)
	qt.Assert(t, qt.ErrorIs(err, elffile.ErrNoPLTGOT))

	im.Sections[0].Kind = elf.SHT_NOBITS
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("_GLOBAL_OFFSET_TABLE_", 0x6000,
		elf.STT_OBJECT, 1))
	path = filepath.Join(directory, "debug")
	qt.Assert(t, qt.IsNil(os.WriteFile(path, im.Bytes(), 0o600)))
	got, err := AddDebugFile(f, path).Symbol(elffile.GOT)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(got.Value, 0x6000))
}
