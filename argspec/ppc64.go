// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strings"
)

// parsePPC64 parses an operand of 64-bit PowerPC, of either byte order:
//
//	N or %rN (register N)  iN (constant)  N(R)  R,R (memory at the sum)
//	SYM+N@toc@l(R)  FUNCTION
//
// As the base of an address, register 0 counts as 0; as the second of two
// registers it counts as itself.
func (p *parser) parsePPC64() {
	p.skipBlanks()
	if p.ppc64Symbol() {
		return
	}
	if p.peek() == 'i' {
		p.pos++
		p.constantExpression()
		return
	}
	ahead := p.scanner
	ahead.accept('%')
	word := ahead.word()
	ahead.skipBlanks()
	if word != "" && (ahead.done() || ahead.peek() == ',') {
		p.scanner = ahead
		r := p.ppc64Named(word)
		if p.accept(',') {
			p.memory(ppc64Base(r), p.ppc64Register(), 1, 0)
		} else {
			p.setRegister(r)
		}
		return
	}
	var displacement value
	if p.peek() != '(' {
		displacement = p.expression()
	}
	tocRelative := p.isTOCRelative()
	if tocRelative {
		p.pos += len(tocRelocation)
	}
	if displacement.addresses != 0 && p.done() {
		p.functionAddress(displacement) // as on s390x
	}
	p.expect('(')
	base := p.ppc64Register()
	p.expect(')')
	if tocRelative {
		p.symbolMemory(displacement)
	} else {
		p.address(ppc64Base(base), Register{}, 1, displacement)
	}
}

// ppc64Symbol makes the argument the address of a function whose name stands
// alone, and reports whether a symbol does. The name of a register is the
// register, and "init" is the constant nit if no function has that name.
func (p *parser) ppc64Symbol() bool {
	ahead := *p
	name := ahead.name()
	if ahead.skipBlanks(); name == "" || !ahead.done() || strings.HasPrefix(name, ".L") {
		return false
	}
	register := p.names.find(lower(name))
	if register != nil && register.unsaved == "" {
		return false
	}
	v := ahead.valueOf(ahead.lookup(name), name)
	isFunction := ahead.err == nil && v.isFunction
	if !isFunction && (name[0] == 'i' || register != nil) {
		return false
	}
	p.pos, p.err = ahead.pos, ahead.err
	p.functionAddress(v)
	return true
}

// tocRelocation marks the second half of an access to a symbol. The register
// has the first, SYM@toc@ha, but not where the linker found the symbol near the
// TOC and deleted the instruction that sets it. So the symbol itself is taken.
const tocRelocation = "@toc@l"

func (p *parser) isTOCRelative() bool {
	return p.header.Machine == elf.EM_PPC64 && strings.HasPrefix(p.rest(), tocRelocation+"(")
}

func ppc64Base(r Register) Register {
	if r.slot == 0 {
		return Register{}
	}
	return r
}

func (p *parser) ppc64Register() Register {
	p.accept('%')
	p.skipBlanks()
	r := p.ppc64Named(p.word())
	if r.slot > 31 {
		p.fail(errRegister, "address of "+r.Name)
	}
	return r
}

func (p *parser) ppc64Named(name string) Register {
	if r := p.names.find("r" + name); r != nil && isDigit(name[0]) {
		return r.Register
	}
	return p.named(lower(name))
}
