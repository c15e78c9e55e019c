// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"math"
	"strconv"
	"strings"
)

// Registers of struct pt_regs in arch/arm/include/uapi/asm/ptrace.h: uregs[18]
// holds r0 to r15, then cpsr and orig_r0. Register.Slot says where a 64-bit
// kernel keeps them.
const (
	armSP = 13
	armLR = 14
	armPC = 15
)

// parseARM parses an operand of 32-bit ARM and Thumb:
//
//	rN  sp  #N  #SYM+N  SYM+N  [R]  [R, #N]  [R, R]  [R, R, lsl #N]
//
// A symbol is its address, not what is there: GCC and clang write so. A float
// constant (#1.5) becomes its bits.
func parseARM(p *parser) error {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[':
		return p.armMemory()
	case c == '#':
		p.pos++
		if p.arg.Float && strings.ContainsAny(p.rest(), ".eE") {
			return p.armFloat()
		}
		if p.skipBlanks(); p.peek() == ':' {
			return relocationFunction(quote(p.rest()))
		}
	case isLetter(c):
		if ok, err := p.registerOrSymbol(); ok {
			return err
		}
	}
	return p.constantExpression()
}

// armFloat parses a float constant. It is its bits in the size of the operand.
func (p *parser) armFloat() error {
	bits := 8 * p.arg.Size
	if bits != 32 && bits != 64 {
		return unavailable(errSize, "")
	}
	f, err := strconv.ParseFloat(p.rest(), bits)
	if err != nil {
		return p.malformed()
	}
	p.pos = len(p.text)
	if bits == 32 {
		p.constant(uint64(math.Float32bits(float32(f))))
	} else {
		p.constant(math.Float64bits(f))
	}
	return nil
}

// armMemory parses the brackets.
func (p *parser) armMemory() error {
	p.pos++
	p.skipBlanks()
	base, err := p.armNamed(lower(p.word()))
	if err != nil {
		return err
	}
	if base.slot == armPC {
		// The instruction's own pc is 8 ahead in ARM code, 4 and rounded down
		// in Thumb code, and the note does not say which the site is.
		return unavailable(errRegister, "address of pc")
	}
	var index Register
	var displacement value
	scale := uint8(1)
	if p.accept(',') {
		p.skipBlanks()
		sign := p.peek() == '-' || p.peek() == '+'
		switch {
		case p.peek() == '-' && isLetter(p.peekAt(1)):
			return unavailable(errIndex, quote(p.rest()))
		case isLetter(p.peek()) || sign && isLetter(p.peekAt(1)):
			p.accept('+')
			index, scale, err = p.armIndex()
		default:
			p.accept('#')
			displacement, err = p.expression()
		}
		if err != nil {
			return err
		}
	}
	if !p.accept(']') {
		return p.malformed()
	}
	return p.address(base, index, scale, displacement)
}

// armIndex parses R, or R, lsl #N.
func (p *parser) armIndex() (Register, uint8, error) {
	r, err := p.armNamed(lower(p.word()))
	if err != nil || !p.accept(',') {
		return r, 1, err
	}
	p.skipBlanks()
	operation := lower(p.word())
	p.accept('#')
	p.skipBlanks()
	amount := uint64(0)
	if operation != "rrx" {
		if amount, err = p.number(); err != nil {
			return r, 1, err
		}
	}
	if operation != "lsl" || amount > 7 {
		return r, 1, unavailable(errIndex, r.Name+" "+operation)
	}
	return r, 1 << amount, nil
}

// armHigh returns the register after r. Values in two registers end before the
// stack pointer.
func (p *parser) armHigh(r Register) Register {
	n := int(r.slot) + 1
	if n >= armSP {
		return Register{}
	}
	return p.general("r"+strconv.Itoa(n), 4, n)
}

// armNamed returns the register of a name in lower case. Beside rN it knows the
// names of the procedure call standard.
func (p *parser) armNamed(name string) (Register, error) {
	if n, ok := numbered(name, "r", 15); ok {
		return p.general(name, 4, n), nil
	}
	if n, ok := numbered(name, "a", 4); ok && n > 0 {
		return p.general(name, 4, n-1), nil
	}
	if n, ok := numbered(name, "v", 8); ok && n > 0 {
		return p.general(name, 4, n+3), nil
	}
	switch name {
	case "sb":
		return p.general(name, 4, 9), nil
	case "sl":
		return p.general(name, 4, 10), nil
	case "fp":
		return p.general(name, 4, 11), nil
	case "ip":
		return p.general(name, 4, 12), nil
	case "sp":
		return p.general(name, 4, armSP), nil
	case "lr":
		return p.general(name, 4, armLR), nil
	case "pc":
		return p.general(name, 4, armPC), nil
	}
	for _, prefix := range [...]string{"s", "d", "q"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return Register{}, noRegister(name, true)
		}
	}
	return Register{}, noRegister(name, false)
}
