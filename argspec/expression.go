// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"slices"
	"strconv"
	"strings"
)

// value is what an expression comes to.
type value struct {
	number uint64
	// addresses is how many addresses were added less how many were
	// subtracted: 0 makes number a plain number, 1 an address in the file.
	addresses  int
	isFunction bool // it is the address of a function, and not calculated
	inGOT      bool // it is in the global offset table: nothing can be calculated with it
}

// maxDepth limits how deep parentheses and unary operators nest, and with it
// the stack. Compilers write none, people one or two.
const maxDepth = 32

// GNU as's precedence, which differs from C's.
const (
	precedenceSum = iota + 1
	precedenceBits
	precedenceProduct
)

// expression evaluates the sum, product or single number that comes next, as
// the assembler does, with the symbols in it looked up. clang writes what is
// added to a symbol before its relocation: SYM+N@GOTOFF.
func (p *parser) expression() value {
	v := p.binary(precedenceSum)
	if p.peek() == '@' && v.addresses == 1 && !p.isTOCRelative() {
		p.pos++
		if relocation := p.word(); !strings.EqualFold(relocation, "GOTOFF") {
			p.fail(errRelocation, relocation)
		}
		return p.fromGOT(v)
	}
	return v
}

// binary evaluates operators that bind at least as strong as the given one.
func (p *parser) binary(precedence int) value {
	left := p.unary()
	for p.err == nil {
		p.skipBlanks()
		operator, length, strength := p.operator()
		if strength < precedence {
			break
		}
		p.pos += length
		left = p.combine(operator, left, p.binary(strength+1))
	}
	return left
}

// operator returns the next binary operator, its length and its precedence (0:
// none). It does not know %, the sigil of registers on most machines.
func (p *parser) operator() (operator byte, length, strength int) {
	c := 0 // C's precedence, which calculations with several immediates have
	operator, length = p.peek(), 1
	switch operator {
	case '+', '-':
		strength, c = precedenceSum, 5
	case '|', '^', '&':
		strength, c = precedenceBits, 1+strings.IndexByte("|^&", operator)
	case '*', '/':
		strength, c = precedenceProduct, 6
	case '<', '>':
		if length = 2; p.peekAt(1) == operator {
			strength, c = precedenceProduct, 4
		}
	}
	if p.immediates {
		strength = c
	}
	return operator, length, strength
}

func (p *parser) combine(operator byte, a, b value) value {
	if operator == '+' && a == (value{}) {
		return b
	}
	if a.inGOT || b.inGOT {
		p.fail(errRelocation, "global offset table in a sum")
	}
	switch operator {
	case '+':
		return value{number: a.number + b.number, addresses: a.addresses + b.addresses}
	case '-':
		return value{number: a.number - b.number, addresses: a.addresses - b.addresses}
	}
	p.plain(a)
	p.plain(b)
	switch operator {
	case '|':
		a.number |= b.number
	case '&':
		a.number &= b.number
	case '^':
		a.number ^= b.number
	case '*':
		a.number *= b.number
	case '/':
		if b.number == 0 {
			p.fail(errSyntax, "division by zero")
			break
		}
		a.number = uint64(int64(a.number) / int64(b.number))
	case '<':
		a.number <<= b.number
	case '>':
		a.number >>= b.number
	}
	return a
}

// plain fails for an address, as the assembler does.
func (p *parser) plain(v value) {
	if v.addresses != 0 {
		p.fail(errSyntax, "an address can only be added and subtracted")
	}
}

// unary evaluates one number, symbol or parenthesis with the signs before it.
func (p *parser) unary() (v value) {
	p.skipBlanks()
	switch c := p.peek(); {
	case isDigit(c):
		return value{number: p.number()}
	case c == '\'':
		return p.character()
	case c == '(' || c == '-' || c == '+' || c == '~' || c == '!' || c == '$' && p.immediates:
		if p.depth == maxDepth {
			p.fail(errSyntax, "nested too deep")
			return value{}
		}
		p.pos++
		p.depth++
		defer func() { p.depth-- }()
		if c == '(' {
			v = p.expression()
			p.expect(')')
			return v
		}
		v = p.unary()
		switch c {
		case '-':
			return p.combine('-', value{}, v)
		case '~':
			p.plain(v)
			return value{number: ^v.number}
		case '!':
			p.plain(v)
			if v.number == 0 {
				return value{number: 1}
			}
			return value{}
		}
		return v
	}
	return p.symbol()
}

// number parses the unsigned number that comes next, in the assembler's ways of
// writing it: 17, 0x11, 021, 0b10001.
func (p *parser) number() uint64 {
	start, base := p.pos, 10
	if p.peek() == '0' {
		switch next := p.peekAt(1); {
		case next|0x20 == 'x':
			base, p.pos = 16, p.pos+2
		case next|0x20 == 'b' && p.peekAt(2)-'0' <= 1:
			base, p.pos = 2, p.pos+2
		case isDigit(next):
			base, p.pos = 8, p.pos+1
		}
	}
	first := p.pos
	for digitValue(p.peek()) < base {
		p.pos++
	}
	c := p.peek()
	if base == 10 && (c == 'b' || c == 'f') && !isNamePart(p.peekAt(1)) {
		p.pos++
		p.fail(errLocalLabel, p.text[start:p.pos])
		return 0
	}
	if p.pos == first || isNamePart(c) {
		p.pos = start
		p.malformed()
		return 0
	}
	number, err := strconv.ParseUint(p.text[first:p.pos], base, 64)
	if err != nil {
		p.fail(errNumber, quote(p.text[start:p.pos]))
	}
	return number
}

// digitValue returns 16 for what is no digit.
func digitValue(c byte) int {
	switch {
	case isDigit(c):
		return int(c - '0')
	case c|0x20-'a' <= 'f'-'a':
		return int(c|0x20-'a') + 10
	}
	return 16
}

// character parses a character constant; the closing quote may be missing.
func (p *parser) character() value {
	if p.pos+1 >= len(p.text) || p.peekAt(1) == '\\' {
		p.malformed()
		return value{}
	}
	v := value{number: uint64(p.peekAt(1))}
	p.pos += 2
	if p.peek() == '\'' {
		p.pos++
	}
	return v
}

// constantExpression makes the argument what comes next: a number, or the
// address of a symbol.
func (p *parser) constantExpression() {
	v := p.expression()
	if p.skipBlanks(); !p.done() {
		p.malformed()
	}
	p.numberOrAddress(v)
}

// numberOrAddress makes the argument a number, or an address. That of a symbol
// in a position-independent file is as far from the instruction pointer as the
// symbol is from the site.
func (p *parser) numberOrAddress(v value) {
	if v.addresses == 1 && !v.inGOT && !p.isAbsolute() {
		p.relativeMemory(p.instructionPointer(), v)
		p.arg.Kind = Address
		return
	}
	p.setConstant(p.absolute(v))
}

// symbolMemory makes the argument the memory at a symbol, wherever the file is
// loaded.
func (p *parser) symbolMemory(v value) {
	switch {
	case v.addresses == 0:
		p.fail(errSyntax, "a symbol is missing")
	case v.addresses == 1 && !p.isAbsolute():
		p.relativeMemory(p.instructionPointer(), v)
	default:
		p.address(Register{}, Register{}, 1, v)
	}
}

// functionAddress makes the argument the address of a function, whose name
// stands alone. That of a variable alone may also be the memory there.
func (p *parser) functionAddress(v value) {
	if !v.isFunction {
		p.fail(errUnclear, "")
	}
	p.numberOrAddress(v)
}

// threadLocalMemory makes the argument the memory of a thread-local variable,
// whose name is what comes next, in parentheses. In a program, the variables
// are at a known distance from the thread pointer.
func (p *parser) threadLocalMemory() {
	p.expect('(')
	p.threadLocal = true
	v := p.expression()
	p.threadLocal = false
	p.expect(')')
	switch {
	case v.addresses != 1:
		p.fail(errSyntax, "a symbol is missing")
	case p.err == nil && !p.file.IsProgram():
		p.fail(errThreadLocal, "of a library")
	}
	p.memory(p.named("tp"), Register{}, 1, v.number)
}

// relativeMemory makes the argument the memory at an address in the file. ip is
// the instruction pointer, which holds the site's address at a hit.
func (p *parser) relativeMemory(ip Register, address value) {
	p.memory(ip, Register{}, 1, address.number-p.location)
}

// absolute returns the number of a value that stands alone, without a register
// that it would be relative to.
func (p *parser) absolute(v value) uint64 {
	switch {
	case v.inGOT:
		p.fail(errRelocation, "global offset table")
	case v.addresses == 0:
	case v.addresses != 1:
		p.fail(errSyntax, "sum of several addresses")
	case !p.isAbsolute():
		p.fail(errPositionIndependent, "")
	}
	return v.number
}

// symbol looks up the symbol that comes next, with its relocation if it has
// one.
func (p *parser) symbol() value {
	name := p.name()
	if name == "" || name == "." {
		p.malformed()
		return value{}
	}
	relocation := ""
	if p.peek() == '@' && !p.isTOCRelative() {
		p.pos++
		relocation = p.word()
	}
	switch {
	case strings.HasPrefix(name, ".L"):
		p.fail(errLocalLabel, name)
	case relocation == "":
		return p.valueOf(p.lookup(name), name)
	case strings.EqualFold(relocation, "GOTOFF"):
		return p.fromGOT(p.valueOf(p.lookup(name), name))
	case strings.EqualFold(relocation, "GOTPCREL") && p.header.Machine == elf.EM_X86_64,
		strings.EqualFold(relocation, "GOT") && p.header.Machine == elf.EM_386:
		return p.inGOT(name)
	case isThreadLocal(relocation):
		p.fail(errThreadLocal, name+"@"+relocation)
	default:
		p.fail(errRelocation, name+"@"+relocation)
	}
	return value{}
}

// valueOf returns the address of a symbol, or the offset of a thread-local
// variable where one is expected.
func (p *parser) valueOf(symbol elf.Symbol, name string) value {
	kind := elf.ST_TYPE(symbol.Info)
	switch {
	case (kind == elf.STT_TLS) != p.threadLocal:
		p.fail(errThreadLocal, name)
	case kind == elf.STT_GNU_IFUNC:
		// Its address is that of the function which it chooses.
		p.fail(errIndirect, name)
	case symbol.Section == elf.SHN_ABS && !p.isAbsolute():
		p.fail(errPositionIndependent, name)
	}
	return value{number: symbol.Value, addresses: 1, isFunction: kind == elf.STT_FUNC}
}

// inGOT returns the content of a symbol's entry in the global offset table: the
// symbol's address, if the symbol is not one that another file may replace.
func (p *parser) inGOT(name string) value {
	symbol := p.lookup(name)
	// The dynamic loader may take the definition of another file instead.
	isReplaceable := elf.ST_BIND(symbol.Info) != elf.STB_LOCAL &&
		elf.ST_VISIBILITY(symbol.Other) == elf.STV_DEFAULT
	if isReplaceable && !p.file.IsProgram() {
		p.fail(errReplaceable, name)
	}
	v := p.valueOf(symbol, name)
	v.inGOT = true
	return v
}

// fromGOT returns how far an address is from the global offset table.
func (p *parser) fromGOT(v value) value {
	return value{number: v.number - p.lookup("_GLOBAL_OFFSET_TABLE_").Value}
}

func (p *parser) lookup(name string) (symbol elf.Symbol) {
	switch {
	case p.err != nil:
	case p.file == nil:
		p.fail(errNoSymbols, name)
	case p.header.Type == elf.ET_REL:
		p.fail(errNotLinked, name)
	default:
		var err error
		if symbol, err = p.file.Symbol(name); err != nil {
			p.err = &unavailableError{reason: errSymbol, cause: err}
		}
	}
	return symbol
}

// isAbsolute: the program runs at the addresses in its file.
func (p *parser) isAbsolute() bool { return p.header.Type == elf.ET_EXEC }

// isThreadLocal recognises the relocations of thread-local variables, on all
// machines: TPOFF, NTPOFF, DTPOFF, GOTTPOFF, INDNTPOFF, TLSGD, TPREL...
func isThreadLocal(relocation string) bool {
	return slices.ContainsFunc([]string{"TPOFF", "TLS", "TPREL"}, func(part string) bool {
		return strings.Contains(strings.ToUpper(relocation), part)
	})
}
