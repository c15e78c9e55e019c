// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"math/bits"
	"strings"
)

// value is what an expression comes to.
type value struct {
	number uint64
	// addresses is how many addresses were added less how many were
	// subtracted: 0 makes number a plain number, 1 an address in the file.
	addresses int
	// isFunction reports whether the value is the address of a function, and
	// inGOT whether it is the content of the global offset table. Calculations
	// lose the one and cannot be done with the other.
	isFunction, inGOT bool
}

// maxDepth limits how deep parentheses and unary operators nest, and with it
// the stack. Compilers write none, people one or two.
const maxDepth = 32

// GNU as's precedence, which differs from C's: products and shifts bind
// strongest, then the bit operators, then sums.
const (
	precedenceSum = iota + 1
	precedenceBits
	precedenceProduct
	precedenceNone = 0
)

// C's precedence, which calculations with several immediates have.
const (
	precedenceOr = iota + 1
	precedenceXor
	precedenceAnd
	precedenceShift
	precedenceAdd
	precedenceMultiply
)

// expression evaluates the sum, product or single number that comes next, as
// the assembler does, with the symbols in it looked up.
func (p *parser) expression() (value, error) { return p.binary(precedenceSum) }

// binary evaluates operators that bind at least as strong as the given one.
func (p *parser) binary(precedence int) (value, error) {
	left, err := p.unary()
	for err == nil {
		p.skipBlanks()
		operator, length, strength := p.operator()
		if strength < precedence {
			return left, nil
		}
		p.pos += length
		var right value
		if right, err = p.binary(strength + 1); err == nil {
			left, err = combine(operator, left, right)
		}
	}
	return value{}, err
}

// operator returns the binary operator that comes next. % is missing: it is the
// sigil of registers on most machines, and no compiler writes it.
func (p *parser) operator() (operator byte, length, strength int) {
	as, c := precedenceNone, precedenceNone
	operator, length = p.peek(), 1
	switch operator {
	case '+', '-':
		as, c = precedenceSum, precedenceAdd
	case '|':
		as, c = precedenceBits, precedenceOr
	case '^':
		as, c = precedenceBits, precedenceXor
	case '&':
		as, c = precedenceBits, precedenceAnd
	case '*', '/':
		as, c = precedenceProduct, precedenceMultiply
	case '<', '>':
		if length = 2; p.peekAt(1) == operator {
			as, c = precedenceProduct, precedenceShift
		}
	}
	if p.immediates {
		return operator, length, c
	}
	return operator, length, as
}

func combine(operator byte, a, b value) (value, error) {
	if operator == '+' && a == (value{}) {
		return b, nil
	}
	if a.inGOT || b.inGOT {
		return value{}, unavailable(errRelocation, "@GOTPCREL in a sum")
	}
	switch operator {
	case '+':
		return value{number: a.number + b.number, addresses: a.addresses + b.addresses}, nil
	case '-':
		return value{number: a.number - b.number, addresses: a.addresses - b.addresses}, nil
	}
	if a.addresses != 0 || b.addresses != 0 {
		return value{}, unavailable(errSyntax, addressArithmetic)
	}
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
			return value{}, unavailable(errSyntax, "division by zero")
		}
		a.number = uint64(int64(a.number) / int64(b.number))
	case '<':
		a.number <<= b.number
	case '>':
		a.number >>= b.number
	}
	return a, nil
}

// unary evaluates one number, symbol or parenthesis with the signs before it.
func (p *parser) unary() (value, error) {
	p.skipBlanks()
	switch c := p.peek(); {
	case isDigit(c):
		number, err := p.number()
		return value{number: number}, err
	case c == '(' || c == '-' || c == '+' || c == '~' || c == '!' || c == '$' && p.immediates:
		if p.depth == maxDepth {
			return value{}, unavailable(errSyntax, "nested too deep")
		}
		p.pos++
		p.depth++
		v, err := p.nested(c)
		p.depth--
		return v, err
	case c == '\'':
		return p.character()
	}
	return p.symbol()
}

// nested evaluates what follows a parenthesis or a unary operator.
func (p *parser) nested(operator byte) (value, error) {
	if operator == '(' {
		v, err := p.expression()
		if err == nil && !p.accept(')') {
			err = p.malformed()
		}
		return v, err
	}
	v, err := p.unary()
	switch {
	case err != nil || operator == '+' || operator == '$':
		return v, err
	case operator == '-':
		return combine('-', value{}, v)
	case v.addresses != 0:
		return value{}, unavailable(errSyntax, addressArithmetic)
	case operator == '~':
		return value{number: ^v.number}, nil
	case v.number == 0: // !
		return value{number: 1}, nil
	}
	return value{}, nil
}

// addressArithmetic is what the assembler refuses too.
const addressArithmetic = "an address can only be added and subtracted"

// number parses the unsigned number that comes next, in the assembler's ways of
// writing it: 17, 0x11, 021, 0b10001.
func (p *parser) number() (uint64, error) {
	start := p.pos
	base := uint64(10)
	if p.peek() == '0' {
		switch next := p.peekAt(1); {
		case next|0x20 == 'x':
			base = 16
			p.pos += 2
		case next|0x20 == 'b' && p.peekAt(2)-'0' <= 1:
			base = 2
			p.pos += 2
		case isDigit(next):
			base = 8
			p.pos++
		}
	}
	first := p.pos
	var number uint64
	overflow := false
	for ; p.pos < len(p.text); p.pos++ {
		digit := uint64(digitValue(p.text[p.pos]))
		if digit >= base {
			break
		}
		high, low := bits.Mul64(number, base)
		sum, carry := bits.Add64(low, digit, 0)
		overflow = overflow || high != 0 || carry != 0
		number = sum
	}
	c := p.peek()
	if base == 10 && (c == 'b' || c == 'f') && !isNamePart(p.peekAt(1)) {
		p.pos++
		return 0, unavailable(errLocalLabel, p.text[start:p.pos])
	}
	switch {
	case p.pos == first || isNamePart(c):
		p.pos = start
		return 0, p.malformed()
	case overflow:
		return 0, unavailable(errNumber, quote(p.text[start:p.pos]))
	}
	return number, nil
}

// digitValue returns the value of a digit up to f, more for other bytes.
func digitValue(c byte) byte {
	switch {
	case isDigit(c):
		return c - '0'
	case c|0x20-'a' <= 'f'-'a':
		return c | 0x20 - 'a' + 10
	}
	return 0xff
}

// character parses a character constant; the closing quote may be missing.
func (p *parser) character() (value, error) {
	if p.pos+1 >= len(p.text) || p.peekAt(1) == '\\' {
		return value{}, p.malformed()
	}
	v := value{number: uint64(p.peekAt(1))}
	p.pos += 2
	if p.peek() == '\'' {
		p.pos++
	}
	return v, nil
}

// constantExpression makes the argument what comes next: a number, or the
// address of a symbol.
func (p *parser) constantExpression() error {
	v, err := p.expression()
	if err != nil {
		return err
	}
	if p.skipBlanks(); !p.done() {
		return p.malformed()
	}
	return p.numberOrAddress(v)
}

// numberOrAddress makes the argument a number, or an address. That of a symbol
// in a position-independent file is as far from the instruction pointer as the
// symbol is from the site.
func (p *parser) numberOrAddress(v value) error {
	if v.addresses == 1 && !v.inGOT && !p.isAbsolute() {
		p.relativeMemory(p.instructionPointer(), v)
		p.arg.Kind = Address
		return nil
	}
	number, err := p.absolute(v)
	if err == nil {
		p.constant(number)
	}
	return err
}

// symbolMemory makes the argument the memory at a symbol, wherever the file is
// loaded.
func (p *parser) symbolMemory(v value) error {
	switch {
	case v.addresses == 0:
		return unavailable(errSyntax, "a symbol is missing")
	case v.addresses == 1 && !p.isAbsolute():
		p.relativeMemory(p.instructionPointer(), v)
		return nil
	}
	return p.address(Register{}, Register{}, 1, v)
}

// functionAddress makes the argument the address of a function, whose name
// stands alone. The name of a variable that does may be the memory there.
func (p *parser) functionAddress(v value) error {
	if !v.isFunction {
		return unavailable(errUnclear, "")
	}
	return p.numberOrAddress(v)
}

// threadLocalMemory makes the argument the memory of a thread-local variable,
// whose name is what comes next, in parentheses. tp is the thread pointer: in a
// program, the variables are at a known distance from it.
func (p *parser) threadLocalMemory(tp Register) error {
	if !p.accept('(') {
		return p.malformed()
	}
	p.threadLocal = true
	v, err := p.expression()
	p.threadLocal = false
	switch {
	case err != nil:
		return err
	case !p.accept(')'):
		return p.malformed()
	case v.addresses != 1:
		return unavailable(errSyntax, "a symbol is missing")
	case !p.target.symbols.IsProgram():
		return unavailable(errThreadLocal, "of a library")
	}
	p.memory(tp, Register{}, 1, v.number)
	return nil
}

// relativeMemory makes the argument the memory at an address in the file. ip is
// the instruction pointer, which holds the site's address at a hit.
func (p *parser) relativeMemory(ip Register, address value) {
	p.memory(ip, Register{}, 1, address.number-p.location)
}

// absolute returns the number of a value that stands alone, without a register
// that it would be relative to.
func (p *parser) absolute(v value) (uint64, error) {
	switch {
	case v.inGOT:
		return 0, unavailable(errRelocation, "@GOTPCREL")
	case v.addresses == 0:
		return v.number, nil
	case v.addresses != 1:
		return 0, unavailable(errSyntax, "sum of several addresses")
	case !p.isAbsolute():
		return 0, unavailable(errPositionIndependent, "")
	}
	return v.number, nil
}

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
	if isReplaceable(symbol) && !p.target.symbols.IsProgram() {
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
	table, err := p.target.symbols.PLTGOT()
	if err != nil {
		return value{}, &unavailableError{reason: errSymbol, cause: err}
	}
	return value{number: v.number - table}, nil
}

// lookup asks the file for a symbol.
func (p *parser) lookup(name string) (elf.Symbol, error) {
	switch {
	case p.target.symbols == nil:
		return elf.Symbol{}, unavailable(errNoSymbols, name)
	case p.target.kind == elf.ET_REL:
		return elf.Symbol{}, unavailable(errNotLinked, name)
	}
	symbol, err := p.target.symbols.Symbol(name)
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
