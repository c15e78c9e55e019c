// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"math"
	"strconv"
	"strings"
)

const armPC = 15 // the word of the pc

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
		if p.arg.Float && strings.ContainsAny(p.rest(), ".eE") {
			p.armFloat()
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

// armFloat parses a float constant. It is its bits in the size of the operand.
func (p *parser) armFloat() {
	f, err := strconv.ParseFloat(p.rest(), 8*p.arg.Size)
	switch {
	case p.arg.Size != 4 && p.arg.Size != 8:
		p.fail(errSize, "")
	case err != nil:
		p.malformed()
	case p.arg.Size == 4:
		p.setConstant(uint64(math.Float32bits(float32(f))))
	default:
		p.setConstant(math.Float64bits(f))
	}
	p.pos = len(p.text)
}

// armMemory parses the brackets.
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
