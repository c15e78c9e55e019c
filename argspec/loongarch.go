// SPDX-License-Identifier: BSD-2-Clause

package argspec

// parseLoongArch parses an operand of LoongArch:
//
//	$rN or ABI name  N  $rN,N  $rN,$rN  [$rN]  [$rN, N]  [sp, N]
//	$rN,%le_lo12_r(SYM+N)
func (p *parser) parseLoongArch() {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[' || c == '$':
		inBrackets := p.accept('[')
		base := p.loongArchRegister()
		switch {
		case p.accept(','):
			p.loongArchOffset(base)
		case inBrackets:
			p.memory(base, Register{}, 1, 0)
		default:
			p.setRegister(base)
		}
		if inBrackets {
			p.expect(']')
		}
		return
	case c == '%':
		p.pos++
		p.relocationFunction("%" + p.name())
		return
	case isLetter(c) && p.registerAlone():
		return
	}
	p.constantExpression()
}

// loongArchOffset parses what is added to the base: a register or a number.
func (p *parser) loongArchOffset(base Register) {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '%':
		p.pos++
		if function := p.name(); function != "le_lo12_r" {
			p.relocationFunction("%" + function)
		}
		// The second half of the offset of a thread-local variable. The
		// register cannot be relied on, as with RISC-V's %tprel_lo().
		p.threadLocalMemory()
		return
	case c == '$':
		p.memory(base, p.loongArchRegister(), 1, 0)
		return
	case isLetter(c):
		ahead := *p
		if index := ahead.nextRegister(); ahead.err == nil {
			p.pos = ahead.pos
			p.memory(base, index, 1, 0)
			return
		}
	}
	p.address(base, Register{}, 1, p.expression())
}

func (p *parser) loongArchRegister() Register {
	p.accept('$')
	return p.nextRegister()
}
