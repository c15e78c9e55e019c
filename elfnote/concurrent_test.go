// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"debug/elf"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile/elfimage"
)

func TestFileIsUsedByManyAtOnce(t *testing.T) {
	im := newImage64()
	im.AddNotes(im.note(at(1)), im.note(at(2)))
	im.AddSymbols(elf.SHT_SYMTAB, "", elfimage.NewSymbol("main", 0x10, elf.STT_FUNC, 1))
	f := im.open(t)
	done := make(chan int)
	for range 8 {
		go func() {
			sites, _ := collect(f)
			f.Symbol("main")
			f.Symbol("nothing")
			f.BuildID()
			f.Symbol("_GLOBAL_OFFSET_TABLE_")
			done <- len(sites)
		}()
	}
	for range 8 {
		qt.Check(t, qt.Equals(<-done, 2))
	}
}
