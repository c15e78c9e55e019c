// SPDX-License-Identifier: BSD-2-Clause

package argspec

// s390xR0 is the word of the general register 0.
const s390xR0 = 3

// parseS390X parses an operand of s390x:
//
//	%rN  N  N(%rN)  N(%rX,%rB)  FUNCTION
//
// In an address, the general register 0 counts as 0.
func (p *parser) parseS390X() {
	p.skipBlanks()
	if p.peek() == '%' {
		p.pos++
		p.setRegister(p.named(lower(p.word())))
		return
	}
	var displacement value
	if p.peek() != '(' || isDigit(p.peekAt(1)) {
		displacement = p.expression()
	}
	if !p.accept('(') {
		if displacement.addresses != 0 {
			// The compiler writes an address so, and also the memory there.
			p.functionAddress(displacement)
		} else {
			p.setConstant(displacement.number)
		}
		return
	}
	base := p.s390xRegister()
	var index Register
	if p.accept(',') {
		index = base
		base = p.s390xRegister()
	}
	p.expect(')')
	p.address(base, index, 1, displacement)
}

// s390xRegister parses a register in an address: %rN, or the number alone, or
// nothing. The zero Register is register 0 or nothing.
func (p *parser) s390xRegister() Register {
	p.skipBlanks()
	if p.peek() == ',' {
		return Register{}
	}
	p.accept('%')
	word := lower(p.word())
	n := p.names.find("r" + word)
	if n == nil {
		n = &named{Register: p.named(word)}
	}
	if n.slot == s390xR0 {
		return Register{}
	}
	return n.Register
}
