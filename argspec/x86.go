// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strings"
)

// parseX86 parses an operand of x86-64 or i386 in the AT&T syntax:
//
//	%R  $N  N(%R)  N(%R,%R,S)  N(,%R,S)  SYM+N(%rip)  SYM+N@GOTOFF(%R)
//
// N is any expression, or missing. $N can be a calculation, $N*$N-($N+$N),
// which no compiler writes. What cannot be AT&T is left to parseIntel. A number
// alone is a constant, as all readers of probes take it, though to the
// assembler it would be an address, and after a segment it is one. A symbol
// alone is the memory there.
func parseX86(p *parser) error {
	p.skipBlanks()
	if p.isCalculation() {
		p.immediates = true
		return p.constantExpression()
	}
	switch p.peek() {
	case '$':
		p.pos++
		return p.constantExpression()
	case '*':
		return unavailable(errIndirect, "")
	case '%':
		return p.x86Register()
	}
	if strings.IndexByte(p.text, '%') < 0 && p.isIntel() {
		return parseIntel(p)
	}
	return p.x86Memory()
}

// isCalculation reports whether an operand without registers has an immediate
// that is not at its start: "$3+($10-$8)", "-($3+$4)". Debuggers calculate so,
// with C's precedence.
func (p *parser) isCalculation() bool {
	if strings.IndexByte(p.text, '%') >= 0 {
		return false
	}
	rest := p.rest()
	for i := 1; i < len(rest); i++ {
		if rest[i] == '$' && !isNamePart(rest[i-1]) {
			return true
		}
	}
	return false
}

// x86Register parses an operand that begins with a register: the register, or
// the segment before an address.
func (p *parser) x86Register() error {
	p.pos++
	p.skipBlanks()
	name := lower(p.word())
	if p.accept(':') {
		if err := x86Segment(name); err != nil {
			return err
		}
		err := p.x86Memory()
		if err == nil && p.arg.Kind == Constant {
			address := p.arg.Constant
			p.arg.Constant = 0
			p.memory(Register{}, Register{}, 1, address)
		}
		return err
	}
	r, err := p.x86Named(name)
	if err == nil {
		p.register(r)
	}
	return err
}

// x86Segment fails for segments that do not begin at 0, as all but fs and gs
// do, and for those that do not exist.
func x86Segment(name string) error {
	switch name {
	case "cs", "ds", "es", "ss":
		return nil
	case "fs", "gs":
		return unavailable(errThreadLocal, "segment "+name)
	}
	return unavailable(errRegister, quote(name))
}

// x86Memory parses DISPLACEMENT(BASE,INDEX,SCALE), of which a part may be
// missing.
func (p *parser) x86Memory() error {
	var displacement value
	if !p.x86Parenthesis() {
		var err error
		if displacement, err = p.expression(); err != nil {
			return err
		}
	}
	if !p.accept('(') {
		switch {
		case !p.done():
			return p.malformed()
		case displacement.addresses != 0:
			return p.address(Register{}, Register{}, 1, displacement)
		}
		p.constant(displacement.number)
		return nil
	}
	var base, index Register
	scale := uint8(1)
	var err error
	p.skipBlanks()
	if p.peek() == '%' {
		if base, err = p.x86Sigil(); err != nil {
			return err
		}
	}
	if p.accept(',') {
		p.skipBlanks()
		if index, err = p.x86Sigil(); err != nil {
			return err
		}
		if p.accept(',') {
			if scale, err = p.x86Scale(); err != nil {
				return err
			}
		}
	}
	if !p.accept(')') {
		return p.malformed()
	}
	return p.x86Address(displacement, base, index, scale)
}

// x86Parenthesis reports whether the parenthesis of the registers comes next,
// and not one of the displacement's.
func (p *parser) x86Parenthesis() bool {
	ahead := p.scanner
	if !ahead.accept('(') {
		return false
	}
	ahead.skipBlanks()
	return ahead.peek() == '%' || ahead.peek() == ','
}

// x86Sigil parses a register with its %.
func (p *parser) x86Sigil() (Register, error) {
	if !p.accept('%') {
		return Register{}, p.malformed()
	}
	p.skipBlanks()
	name := lower(p.word())
	if name == "riz" || name == "eiz" {
		// The assembler's way to write an index that is none.
		return Register{}, nil
	}
	return p.x86Named(name)
}

// x86Scale parses the scale, which is 1 if it is missing.
func (p *parser) x86Scale() (uint8, error) {
	p.skipBlanks()
	if p.peek() == ')' {
		return 1, nil
	}
	v, err := p.expression()
	if err != nil {
		return 0, err
	}
	if v.addresses == 0 {
		switch v.number {
		case 1, 2, 4, 8:
			return uint8(v.number), nil
		}
	}
	return 0, unavailable(errSyntax, "scale is not 1, 2, 4 or 8")
}

// x86Address makes the argument a value at the sum. A symbol is relative to the
// instruction pointer where that is the base, else it has to be absolute.
func (p *parser) x86Address(displacement value, base, index Register, scale uint8) error {
	if !isX86Address(base, index) {
		return unavailable(errRegister, "address of "+base.Name+" and "+index.Name)
	}
	if displacement.inGOT && isX86IP(base) {
		// The content of the table, which is an address, is the value.
		displacement.inGOT = false
		return p.numberOrAddress(displacement)
	}
	if displacement.addresses == 1 && isX86IP(base) {
		p.relativeMemory(base, displacement)
		return nil
	}
	return p.address(base, index, scale, displacement)
}

func isX86IP(r Register) bool { return !r.IsZero() && r.slot == x86IP }

// isX86Address reports whether the two registers can make an address: both of
// 64 or both of 32 bits, or one missing. (16-bit addresses do not exist in
// 64-bit code, and compilers do not use them in other.)
func isX86Address(base, index Register) bool {
	if isX86IP(index) || isX86IP(base) && !index.IsZero() {
		return false
	}
	width := max(base.size, index.size)
	return (base.IsZero() || base.size == width) &&
		(index.IsZero() || index.size == width) &&
		(width == 0 || width >= 4)
}

// x86Named returns the register of a name in lower case.
func (p *parser) x86Named(name string) (Register, error) {
	slot, size, shift := x86Lookup(name)
	if size == 0 {
		if isX86Special(name) {
			return Register{}, unavailable(errNotSaved, "register "+name)
		}
		return Register{}, noRegister(name, isX86Vector(name))
	}
	if p.target.machine == elf.EM_386 && !isI386(slot, size) {
		return Register{}, noRegister(name, false)
	}
	return Register{Name: name, size: size, Shift: shift, slot: slot,
		machine: p.target.machine}, nil
}
