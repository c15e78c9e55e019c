// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strings"
)

// symbol looks up the symbol that comes next, with its relocation if it has
// one.
func (p *parser) symbol() (value, error) {
	name := p.name()
	if name == "" || name == "." {
		return value{}, p.malformed()
	}
	relocation := ""
	if p.peek() == '@' && !p.isTOCRelative() {
		p.pos++
		relocation = p.word()
	}
	if strings.HasPrefix(name, ".L") {
		return value{}, unavailable(errLocalLabel, name)
	}
	switch {
	case relocation == "":
		return p.symbolValue(name)
	case strings.EqualFold(relocation, "GOTOFF"):
		return p.fromPLTGOT(name)
	case strings.EqualFold(relocation, "GOTPCREL") && p.target.machine == elf.EM_X86_64:
		return p.inGOT(name)
	case isThreadLocal(relocation):
		return value{}, unavailable(errThreadLocal, name+"@"+relocation)
	}
	return value{}, unavailable(errRelocation, name+"@"+relocation)
}

// symbolValue looks a symbol up and returns its address, or the offset of a
// thread-local variable where one is expected.
func (p *parser) symbolValue(name string) (value, error) {
	symbol, err := p.lookup(name)
	if err != nil {
		return value{}, err
	}
	return p.valueOf(symbol, name)
}

func (p *parser) valueOf(symbol elf.Symbol, name string) (value, error) {
	kind := elf.ST_TYPE(symbol.Info)
	switch {
	case (kind == elf.STT_TLS) != p.threadLocal:
		return value{}, unavailable(errThreadLocal, name)
	case kind == elf.STT_GNU_IFUNC:
		// Its address is that of the function which it chooses.
		return value{}, unavailable(errIndirect, name)
	case symbol.Section == elf.SHN_ABS && !p.isAbsolute():
		return value{}, unavailable(errPositionIndependent, name)
	}
	return value{number: symbol.Value, addresses: 1, isFunction: kind == elf.STT_FUNC}, nil
}

// inGOT returns the content of a symbol's entry in the global offset table: the
// symbol's address, if the symbol is not one that another file may replace.
func (p *parser) inGOT(name string) (value, error) {
	symbol, err := p.lookup(name)
	if err != nil {
		return value{}, err
	}
	if isReplaceable(symbol) && !p.target.file.IsProgram() {
		return value{}, unavailable(errReplaceable, name)
	}
	v, err := p.valueOf(symbol, name)
	v.inGOT = true
	return v, err
}

// isReplaceable reports whether the dynamic loader may take the definition of
// another file instead.
func isReplaceable(symbol elf.Symbol) bool {
	return elf.ST_BIND(symbol.Info) != elf.STB_LOCAL &&
		elf.ST_VISIBILITY(symbol.Other) == elf.STV_DEFAULT
}

// fromPLTGOT returns how far a symbol is from DT_PLTGOT.
func (p *parser) fromPLTGOT(name string) (value, error) {
	v, err := p.symbolValue(name)
	if err != nil {
		return value{}, err
	}
	table, err := p.target.file.PLTGOT()
	if err != nil {
		return value{}, &unavailableError{reason: errSymbol, cause: err}
	}
	return value{number: v.number - table}, nil
}

// lookup asks the file for a symbol.
func (p *parser) lookup(name string) (elf.Symbol, error) {
	switch {
	case p.target.file == nil:
		return elf.Symbol{}, unavailable(errNoSymbols, name)
	case p.target.kind == elf.ET_REL:
		return elf.Symbol{}, unavailable(errNotLinked, name)
	}
	symbol, err := p.target.file.Symbol(name)
	if err != nil {
		return elf.Symbol{}, &unavailableError{reason: errSymbol, cause: err}
	}
	return symbol, nil
}

// isAbsolute reports whether the program runs at the addresses in its file.
func (p *parser) isAbsolute() bool { return p.target.kind == elf.ET_EXEC }

// isThreadLocal recognises the relocations of thread-local variables, on all
// machines: TPOFF, NTPOFF, DTPOFF, GOTTPOFF, INDNTPOFF, TLSGD, TPREL...
func isThreadLocal(relocation string) bool {
	upper := strings.ToUpper(relocation)
	return strings.Contains(upper, "TPOFF") || strings.Contains(upper, "TLS") ||
		strings.Contains(upper, "TPREL")
}
