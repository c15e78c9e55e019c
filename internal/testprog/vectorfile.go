// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/internal/elffile"
)

// VectorFile is the file that an argument string is from, as package argspec
// asks for it.
type VectorFile struct {
	machine   elf.Machine
	class     elf.Class
	order     binary.ByteOrder
	kind      elf.Type
	isLibrary bool
	symbols   map[string]elf.Symbol
	unclear   map[string]bool // names of several symbols
	pltgot    *uint64
}

// Header returns what matters of the ELF header. ByteOrder is nil for
// little-endian.
func (f *VectorFile) Header() elf.FileHeader {
	header := elf.FileHeader{Machine: f.machine, Class: f.class, ByteOrder: f.order, Type: f.kind}
	if header.Type == elf.ET_NONE {
		header.Type = elf.ET_DYN
	}
	return header
}

// Symbols returns the file itself.
func (f *VectorFile) Symbols() elffile.Symbols { return f }

// IsProgram reports whether it is no library.
func (f *VectorFile) IsProgram() bool { return !f.isLibrary }

// Symbol returns a symbol by its name.
func (f *VectorFile) Symbol(name string) (elf.Symbol, error) {
	if f.unclear[name] {
		return elf.Symbol{}, errors.New("several symbols of that name")
	}
	if symbol, ok := f.symbols[name]; ok {
		return symbol, nil
	}
	return elf.Symbol{}, errors.New("no such symbol")
}

// PLTGOT returns DT_PLTGOT.
func (f *VectorFile) PLTGOT() (uint64, error) {
	if f.pltgot == nil {
		return 0, errors.New("no DT_PLTGOT")
	}
	return *f.pltgot, nil
}

// addSymbol reads the name and the value of a symbol of a kind.
func (f *VectorFile) addSymbol(kind, text string) (err error) {
	i := strings.LastIndexByte(text, ' ')
	symbol := elf.Symbol{Info: elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT), Section: 1}
	switch kind {
	case "function":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_FUNC)
	case "thread-local":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_TLS)
	case "chooser":
		symbol.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_GNU_IFUNC)
	case "hidden":
		symbol.Other = byte(elf.STV_HIDDEN)
	case "constant":
		symbol.Section = elf.SHN_ABS
	}
	symbol.Value, err = strconv.ParseUint(text[i+1:], 0, 64)
	f.symbols[strings.Trim(text[:i], `"`)] = symbol
	return err
}
