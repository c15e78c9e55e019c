// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"encoding/binary"
	"errors"
)

var errNoSuchSymbol = errors.New("no such symbol")

// testFile is the file that argument strings are from. The zero value is a
// position-independent program of no machine, without symbols.
type testFile struct {
	machine   elf.Machine
	class     elf.Class
	order     binary.ByteOrder
	kind      elf.Type
	isLibrary bool
	symbol    func(name string) (elf.Symbol, error)
}

// x86 is a file for tests that are not about machines.
var x86 = testFile{machine: elf.EM_X86_64, class: elf.ELFCLASS64}

func (f *testFile) Header() elf.FileHeader {
	header := elf.FileHeader{Machine: f.machine, Class: f.class, ByteOrder: f.order, Type: f.kind}
	if header.Type == elf.ET_NONE {
		header.Type = elf.ET_DYN
	}
	return header
}

func (f *testFile) IsProgram() bool { return !f.isLibrary }

func (f *testFile) Symbol(name string) (elf.Symbol, error) {
	if f.symbol == nil {
		return elf.Symbol{}, errNoSuchSymbol
	}
	return f.symbol(name)
}

// decode decodes a string of the file.
func (f testFile) decode(location uint64, text string) []Arg {
	return Decode(nil, &f, location, text)
}

// newSymbol returns a symbol that other files may replace.
func newSymbol(kind elf.SymType, value uint64) elf.Symbol {
	return elf.Symbol{Info: elf.ST_INFO(elf.STB_GLOBAL, kind), Section: 1, Value: value}
}

// everySymbol has all symbols at one address.
func everySymbol(address uint64) func(string) (elf.Symbol, error) {
	return func(string) (elf.Symbol, error) { return newSymbol(elf.STT_OBJECT, address), nil }
}
