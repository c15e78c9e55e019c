// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"math"
	"strconv"
	"strings"
)

// The words of the stack pointer and of the pc.
const armPC, arm64SP, arm64PC = 15, 31, 32

// parseARM parses an operand of 32-bit ARM and Thumb:
//
//	rN  sp  #N  #SYM+N  SYM+N  [R]  [R, #N]  [R, R]  [R, R, lsl #N]
//
// A symbol is its address, not what is there: GCC and clang write so. A float
// constant (#1.5) becomes its bits.
func (p *parser) parseARM() {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[':
		p.armMemory()
		return
	case c == '#':
		p.pos++
		if p.armFloat() {
			return
		}
		if p.skipBlanks(); p.peek() == ':' {
			p.relocationFunction(quote(p.rest()))
		}
	case isLetter(c) && p.registerAlone():
		return
	}
	p.constantExpression()
}

// armFloat parses a float constant, if there is one. It is its bits in the size
// of the operand. An integer is the bits themselves.
func (p *parser) armFloat() bool {
	rest := strings.ToLower(p.rest())
	if !p.arg.Float || !strings.ContainsAny(rest, ".ein") || strings.HasPrefix(rest, "0x") {
		return false
	}
	f, err := strconv.ParseFloat(rest, 8*p.arg.Size)
	if name := strings.TrimLeft(rest, "+-"); name == "qnan" || name == "snan" {
		f, err = math.Float64frombits(0x7ff8<<48), nil // GCC does not write more of it
		if rest[0] == '-' {
			f = -f
		}
	}
	switch {
	case err != nil:
		p.malformed()
	case p.arg.Size == 4:
		p.setConstant(uint64(math.Float32bits(float32(f))))
	default:
		p.setConstant(math.Float64bits(f))
	}
	p.pos = len(p.text)
	return true
}

func (p *parser) armMemory() {
	p.pos++
	base := p.nextRegister()
	if base.slot == armPC {
		// The instruction's own pc is 8 ahead in ARM code, 4 and rounded down
		// in Thumb code, and the note does not say which the site is.
		p.fail(errRegister, "address of pc")
	}
	var index Register
	var displacement value
	scale := uint8(1)
	if p.accept(',') {
		p.skipBlanks()
		sign := p.peek() == '-' || p.peek() == '+'
		switch {
		case p.peek() == '-' && isLetter(p.peekAt(1)):
			p.fail(errIndex, quote(p.rest()))
		case isLetter(p.peek()) || sign && isLetter(p.peekAt(1)):
			p.accept('+')
			index, scale = p.armIndex()
		default:
			p.accept('#')
			displacement = p.expression()
		}
	}
	p.expect(']')
	p.address(base, index, scale, displacement)
}

// armIndex parses R, or R, lsl #N.
func (p *parser) armIndex() (Register, uint8) {
	r := p.nextRegister()
	if !p.accept(',') {
		return r, 1
	}
	p.skipBlanks()
	operation := lower(p.word())
	p.accept('#')
	p.skipBlanks()
	amount := uint64(0)
	if operation != "rrx" {
		amount = p.number()
	}
	if operation != "lsl" || amount > 7 {
		p.fail(errIndex, r.Name+" "+operation)
	}
	return r, 1 << amount
}

// parseARM64 parses an operand of arm64:
//
//	xN  wN  sp  N  #N  [R]  [R, #N]  [R, R]  [R, R, lsl #N]  [R, W, uxtw #N]
//	[R, W, sxtw #N]  [R, #:lo12:SYM+N]
//
// #:lo12: can be undone where the symbol table has the symbol: the register
// holds the start of its page, and pages are loaded whole.
func (p *parser) parseARM64() {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[':
		p.arm64Memory()
		return
	case c == '#':
		p.pos++
	case isLetter(c) && p.registerAlone():
		return
	}
	if !p.armFloat() {
		p.constantExpression()
	}
}

func (p *parser) arm64Memory() {
	p.pos++
	p.skipBlanks()
	name := lower(p.word())
	base := p.named(name)
	if base.size != 8 || base.slot > arm64SP {
		p.fail(errRegister, "address of "+quote(name))
	}
	var index Register
	var displacement value
	scale := uint8(1)
	if p.accept(',') {
		if p.skipBlanks(); isLetter(p.peek()) {
			index, scale = p.arm64Index()
		} else {
			displacement = p.arm64Displacement()
		}
	}
	p.expect(']')
	p.address(base, index, scale, displacement)
}

// arm64Displacement parses N, #N or #:lo12:SYM.
func (p *parser) arm64Displacement() value {
	p.accept('#')
	p.skipBlanks()
	if p.peek() != ':' {
		return p.expression()
	}
	end := strings.IndexByte(p.rest()[1:], ':')
	if end < 0 {
		p.malformed()
		return value{}
	}
	function := p.rest()[:end+2]
	p.pos += len(function)
	if function != ":lo12:" {
		p.relocationFunction(quote(function))
	}
	return value{number: p.expression().number & 0xfff}
}

// arm64Index parses R, or R and how it is extended and shifted.
func (p *parser) arm64Index() (r Register, scale uint8) {
	r = p.nextRegister()
	operation, amount := "", uint64(0)
	if p.accept(',') {
		p.skipBlanks()
		operation = lower(p.word())
		p.accept('#')
		if p.skipBlanks(); isDigit(p.peek()) {
			amount = p.number()
		}
	}
	width := uint8(8)
	switch operation {
	case "", "lsl", "uxtx", "sxtx":
		// To extend 64 bits to 64 changes nothing.
	case "uxtw":
		p.arg.IndexSize, width = 4, 4
	case "sxtw":
		p.arg.IndexSize, width = -4, 4
	default:
		p.fail(errIndex, r.Name+" "+operation)
	}
	if r.size != width && !r.isZero() || amount > 4 {
		p.fail(errIndex, strings.TrimSpace(r.Name+" "+operation))
	}
	return r, 1 << amount
}
