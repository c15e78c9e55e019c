// SPDX-License-Identifier: BSD-2-Clause

package symbols

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/elfnote"
)

// fixtures are a stripped program and its debug file.
const fixtures = "../../cmd/usdtlist/testdata/shop-amd64"

// linkedElsewhere writes a copy of an ELF64 file that is linked for other
// addresses, as the debug file of a prelinked file is.
func linkedElsewhere(t *testing.T, path string, distance uint64) string {
	t.Helper()
	b, err := os.ReadFile(path)
	qt.Assert(t, qt.IsNil(err))
	f, err := elf.NewFile(bytes.NewReader(b))
	qt.Assert(t, qt.IsNil(err))
	defer f.Close()
	move := func(at uint64) {
		binary.LittleEndian.PutUint64(b[at:], binary.LittleEndian.Uint64(b[at:])+distance)
	}
	programs, sections := binary.LittleEndian.Uint64(b[32:]), binary.LittleEndian.Uint64(b[40:])
	for i := range f.Progs {
		move(programs + uint64(i)*56 + 16) // p_vaddr
	}
	for i, s := range f.Sections {
		if s.Flags&elf.SHF_ALLOC != 0 {
			move(sections + uint64(i)*64 + 16) // sh_addr
		}
		if s.Type != elf.SHT_SYMTAB {
			continue
		}
		for at := s.Offset; at < s.Offset+s.Size; at += elf.Sym64Size {
			if binary.LittleEndian.Uint16(b[at+6:]) != uint16(elf.SHN_UNDEF) {
				move(at + 8) // st_value
			}
		}
	}
	moved := filepath.Join(t.TempDir(), "moved.debug")
	qt.Assert(t, qt.IsNil(os.WriteFile(moved, b, 0o600)))
	return moved
}

// resolve parses all arguments of the fixture.
func resolve(t *testing.T, debug string, find bool) (args []argspec.Arg, missing string) {
	t.Helper()
	file, err := elfnote.Open(fixtures)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	r, err := New(file, debug)
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	if find {
		r.Find(func(yield func(string) bool) {
			for site := range file.Sites() {
				if !yield(site.Arguments) {
					return
				}
			}
		})
	}
	target := r.Target()
	for site, err := range file.Sites() {
		qt.Assert(t, qt.IsNil(err))
		target.Location = site.Location
		args = argspec.AppendParse(args, &target, site.Arguments)
	}
	return args, r.Missing
}

func TestSymbolsComeFromADebugFile(t *testing.T) {
	const arg = "8 signed @ [rip+4432]" // of stock_of_apples(%rip)
	text := func(args []argspec.Arg) (all []string) {
		for _, a := range args {
			all = append(all, a.String())
		}
		return all
	}
	for _, find := range []bool{false, true} {
		without, missing := resolve(t, "", find)
		qt.Check(t, qt.Equals(missing, "stock_of_apples"))
		qt.Check(t, qt.IsFalse(slices.Contains(text(without), arg)))

		with, missing := resolve(t, fixtures+".debug", find)
		qt.Check(t, qt.Equals(missing, ""))
		qt.Check(t, qt.IsTrue(slices.Contains(text(with), arg)), qt.Commentf("%v", with))

		for _, distance := range []uint64{0x1000000, ^uint64(0xfff)} {
			elsewhere, _ := resolve(t, linkedElsewhere(t, fixtures+".debug", distance), find)
			qt.Check(t, qt.DeepEquals(text(elsewhere), text(with)))
		}
	}
}

func TestDebugFileAskedForMustExist(t *testing.T) {
	file, err := elfnote.Open(fixtures)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	_, err = New(file, "/nowhere/shop.debug")
	qt.Assert(t, qt.ErrorIs(err, os.ErrNotExist))
}

// Files of strangers can have more arguments than are looked at together.
func TestFindingIsBounded(t *testing.T) {
	file, err := elfnote.Open(fixtures)
	qt.Assert(t, qt.IsNil(err))
	defer file.Close()
	r, err := New(file, "")
	qt.Assert(t, qt.IsNil(err))
	defer r.Close()
	count := 0
	r.Find(func(yield func(string) bool) {
		for yield("8@a(%rip) 8@b+c(%rip)") {
			count += 2
		}
	})
	qt.Check(t, qt.IsTrue(count < maxFound), qt.Commentf("%d", count))
	_, err = r.Target().Symbol("a")
	qt.Check(t, qt.ErrorIs(err, elfnote.ErrSymbolNotFound))
}

func TestTextsThatMayNameSymbols(t *testing.T) {
	for text, want := range map[string]bool{
		"":                             false,
		"8@%rdi -4@%esi 4@-1608(%rbp)": false,
		"-4f@%xmm0 8@$-1 8@8(%rax,%r8d,4) 4@%r10d": false,
		"8@counter(%rip)":                          true,
		"8@-8+_x(%rip)":                            true,
		"8@$.data":                                 true,
		"8@$\xc3\xa4":                              true,
		"4@%lo(x)(a4)":                             true,
		"8@x0":                                     true, // a register of arm64
		"8@%rax 8@table(,%rdi,4)":                  true,
	} {
		qt.Check(t, qt.Equals(mayName(text), want), qt.Commentf("%s", text))
	}
}
