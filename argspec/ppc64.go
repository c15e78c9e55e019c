// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
	"strings"
)

// Words of struct pt_regs in arch/powerpc/include/uapi/asm/ptrace.h: gpr[32],
// nip, msr, orig_gpr3, ctr, link, xer, ccr.
const (
	ppc64PC   = 32
	ppc64CTR  = 35
	ppc64Link = 36
	ppc64XER  = 37
)

// parsePPC64 parses an operand of 64-bit PowerPC, of either byte order:
//
//	N or %rN (register N)  iN (constant)  N(R)  R,R (memory at the sum)
//	SYM+N@toc@l(R)  FUNCTION
//
// As the base of an address, register 0 counts as 0; as the second of two
// registers it counts as itself.
func parsePPC64(p *parser) error {
	p.skipBlanks()
	if is, err := p.ppc64Symbol(); is {
		return err
	}
	c := p.peek()
	if c == 'i' {
		p.pos++
		return p.constantExpression()
	}
	ahead := p.scanner
	ahead.accept('%')
	word := ahead.word()
	ahead.skipBlanks()
	if word != "" && (ahead.done() || ahead.peek() == ',') {
		p.scanner = ahead
		return p.ppc64Registers(word)
	}
	var displacement value
	if c != '(' {
		var err error
		if displacement, err = p.expression(); err != nil {
			return err
		}
	}
	tocRelative := p.isTOCRelative()
	if tocRelative {
		p.pos += len(tocRelocation)
	}
	if !p.accept('(') {
		return p.malformed()
	}
	base, err := p.ppc64Operand()
	if err != nil {
		return err
	}
	if !p.accept(')') {
		return p.malformed()
	}
	if tocRelative {
		return p.symbolMemory(displacement)
	}
	return p.address(ppc64Base(base), Register{}, 1, displacement)
}

// ppc64Symbol makes the argument the address of a function whose name stands
// alone, and reports whether a symbol does. The name of a register is the
// register, and "init" is the constant nit if no function has that name.
func (p *parser) ppc64Symbol() (bool, error) {
	ahead := p.scanner
	name := ahead.name()
	if ahead.skipBlanks(); name == "" || !ahead.done() || strings.HasPrefix(name, ".L") {
		return false, nil
	}
	_, notRegister := p.ppc64Named(lower(name))
	if notRegister == nil {
		return false, nil
	}
	v, err := p.symbolValue(name)
	isNoFunction := err != nil || !v.isFunction
	if isNoFunction && (name[0] == 'i' || !errors.Is(notRegister, errRegister)) {
		return false, nil
	}
	p.scanner = ahead
	if err != nil {
		return true, err
	}
	return true, p.functionAddress(v)
}

// tocRelocation marks the second half of an access to a symbol. The register
// has the first half, SYM@toc@ha. The register cannot be relied on: where
// the linker found the symbol near the TOC, it deleted the instruction that
// sets it. So the symbol itself is taken.
const tocRelocation = "@toc@l"

// isTOCRelative reports whether tocRelocation comes next.
func (p *parser) isTOCRelative() bool {
	return p.target.machine == elf.EM_PPC64 && strings.HasPrefix(p.rest(), tocRelocation+"(")
}

// ppc64Registers finishes a register, or an address of two registers. The first
// is parsed already.
func (p *parser) ppc64Registers(word string) error {
	r, err := p.ppc64Named(lower(word))
	if err != nil {
		return err
	}
	if !p.accept(',') {
		p.register(r)
		return nil
	}
	index, err := p.ppc64Operand()
	if err == nil {
		p.memory(ppc64Base(r), index, 1, 0)
	}
	return err
}

// ppc64Base returns the register that a base stands for.
func ppc64Base(r Register) Register {
	if r.slot == 0 {
		return Register{}
	}
	return r
}

// ppc64Operand parses a register within an address.
func (p *parser) ppc64Operand() (Register, error) {
	p.accept('%')
	p.skipBlanks()
	r, err := p.ppc64Named(lower(p.word()))
	if err == nil && r.slot > 31 {
		return r, unavailable(errRegister, "address of "+r.Name)
	}
	return r, err
}

// ppc64Named returns the register of a name in lower case, or of a number.
func (p *parser) ppc64Named(name string) (Register, error) {
	if n, ok := numbered(name, "", 31); ok {
		return p.general(ppc64Names[n], 8, n), nil
	}
	if n, ok := numbered(name, "r", 31); ok {
		return p.general(name, 8, n), nil
	}
	switch name {
	case "sp":
		return p.general(name, 8, 1), nil
	case "toc", "rtoc":
		return p.general(name, 8, 2), nil
	case "ctr":
		return p.general(name, 8, ppc64CTR), nil
	case "lr":
		return p.general(name, 8, ppc64Link), nil
	case "xer":
		return p.general(name, 8, ppc64XER), nil
	}
	for _, prefix := range [...]string{"f", "v", "vr"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return Register{}, noRegister(name, true)
		}
	}
	_, vector := numbered(name, "vs", 63)
	return Register{}, noRegister(name, vector)
}

var ppc64Names = [32]string{
	"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
	"r16", "r17", "r18", "r19", "r20", "r21", "r22", "r23",
	"r24", "r25", "r26", "r27", "r28", "r29", "r30", "r31",
}
