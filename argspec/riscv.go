// SPDX-License-Identifier: BSD-2-Clause

package argspec

// parseRISCV parses an operand of RISC-V, 64 or 32 bits wide:
//
//	R (ABI name or xN)  N  N(R)  %lo(SYM+N)(R)  %tprel_lo(SYM+N)(R)
func (p *parser) parseRISCV() {
	p.skipBlanks()
	c := p.peek()
	if c == '%' {
		p.riscvLow()
		return
	}
	if isLetter(c) && p.registerAlone() {
		return
	}
	var displacement value
	if c != '(' || isDigit(p.peekAt(1)) {
		displacement = p.expression()
	}
	if !p.accept('(') {
		if p.skipBlanks(); !p.done() {
			p.malformed()
		}
		p.numberOrAddress(displacement)
		return
	}
	base := p.nextRegister()
	p.expect(')')
	p.address(base, Register{}, 1, displacement)
}

// riscvLow parses %lo(SYM+N)(R), the second half of an access to an absolute
// address of which R holds the first, %hi(SYM+N); or %tprel_lo(SYM+N)(R), the
// same for a thread-local variable. Where the linker found the symbol near gp
// or tp, it deleted the instruction that sets R. So the symbol itself is taken.
func (p *parser) riscvLow() {
	p.pos++
	switch function := p.name(); function {
	case "lo":
		p.expect('(')
		address := p.expression()
		p.expect(')')
		if !p.isAbsolute() {
			p.relocationFunction("%lo")
		}
		p.address(Register{}, Register{}, 1, address)
	case "tprel_lo":
		p.threadLocalMemory()
	default:
		p.relocationFunction("%" + function)
	}
	p.expect('(')
	p.nextRegister()
	p.expect(')')
}
