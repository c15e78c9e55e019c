// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

// One search finds what all arguments name.
func TestSymbolsOfArgumentsAreFoundAtOnce(t *testing.T) {
	const most = 1 << 18 // maxArgumentWords of elffile
	const count = most + 10_000
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
	words := elffile.ArgumentWords(f.arguments)
	qt.Assert(t, qt.HasLen(words, most))
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
