// SPDX-License-Identifier: BSD-2-Clause

package argspec

import "strings"

// Words of struct user_pt_regs in arch/arm64/include/uapi/asm/ptrace.h, with
// which struct pt_regs begins: regs[31], sp, pc, pstate.
const (
	arm64SP = 31
	arm64PC = 32
)

// parseARM64 parses an operand of arm64:
//
//	xN  wN  sp  N  #N  [R]  [R, #N]  [R, R]  [R, R, lsl #N]  [R, W, uxtw #N]
//	[R, W, sxtw #N]  [R, #:lo12:SYM+N]
//
// #:lo12: can be undone where the symbol table has the symbol: the register
// holds the start of its page, and pages are loaded whole.
func parseARM64(p *parser) error {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[':
		return p.arm64Memory()
	case c == '#':
		p.pos++
	case isLetter(c):
		if ok, err := p.registerOrSymbol(); ok {
			return err
		}
	}
	return p.constantExpression()
}

// arm64Memory parses the brackets.
func (p *parser) arm64Memory() error {
	p.pos++
	p.skipBlanks()
	name := lower(p.word())
	base, err := p.arm64Named(name)
	if err != nil {
		return err
	}
	if base.size != 8 || base.slot > arm64SP {
		return unavailable(errRegister, "address of "+quote(name))
	}
	var index Register
	var indexSize int8
	var displacement value
	scale := uint8(1)
	if p.accept(',') {
		p.skipBlanks()
		if isLetter(p.peek()) {
			index, indexSize, scale, err = p.arm64Index()
		} else {
			displacement, err = p.arm64Displacement()
		}
		if err != nil {
			return err
		}
	}
	if !p.accept(']') {
		return p.malformed()
	}
	p.arg.IndexSize = indexSize
	return p.address(base, index, scale, displacement)
}

// arm64Displacement parses N, #N or #:lo12:SYM.
func (p *parser) arm64Displacement() (value, error) {
	p.accept('#')
	p.skipBlanks()
	if p.peek() != ':' {
		return p.expression()
	}
	end := strings.IndexByte(p.rest()[1:], ':')
	if end < 0 {
		return value{}, p.malformed()
	}
	function := p.rest()[:end+2]
	p.pos += len(function)
	if function != ":lo12:" {
		return value{}, relocationFunction(quote(function))
	}
	v, err := p.expression()
	return value{number: v.number & 0xfff}, err
}

// arm64Index parses R, or R and how it is extended and shifted.
func (p *parser) arm64Index() (r Register, size int8, scale uint8, err error) {
	if r, err = p.arm64Named(lower(p.word())); err != nil {
		return Register{}, 0, 0, err
	}
	operation, amount := "", uint64(0)
	if p.accept(',') {
		p.skipBlanks()
		operation = lower(p.word())
		p.accept('#')
		p.skipBlanks()
		if isDigit(p.peek()) {
			if amount, err = p.number(); err != nil {
				return Register{}, 0, 0, err
			}
		}
	}

	width := uint8(8)
	switch operation {
	case "", "lsl", "uxtx", "sxtx":
		// To extend 64 bits to 64 changes nothing.
	case "uxtw":
		size, width = 4, 4
	case "sxtw":
		size, width = -4, 4
	default:
		return Register{}, 0, 0, unavailable(errIndex, r.Name+" "+operation)
	}
	if r.size != width && !r.isZero() || amount > 4 {
		return Register{}, 0, 0, unavailable(errIndex, strings.TrimSpace(r.Name+" "+operation))
	}
	return r, size, 1 << amount, nil
}

// arm64Named returns the register of a name in lower case, the zero Register
// for xzr and wzr.
func (p *parser) arm64Named(name string) (Register, error) {
	if n, ok := numbered(name, "x", 31); ok {
		// 31 is written for sp by some compilers; xzr has no number then.
		return p.general(name, 8, n), nil
	}
	if n, ok := numbered(name, "w", 31); ok {
		return p.general(name, 4, n), nil
	}
	switch name {
	case "sp":
		return p.general(name, 8, arm64SP), nil
	case "wsp":
		return p.general(name, 4, arm64SP), nil
	case "lr":
		return p.general(name, 8, 30), nil
	case "fp":
		return p.general(name, 8, 29), nil
	case "ip0":
		return p.general(name, 8, 16), nil
	case "ip1":
		return p.general(name, 8, 17), nil
	case "pc":
		return p.general(name, 8, arm64PC), nil
	case "xzr", "wzr":
		return Register{}, nil
	}
	for _, prefix := range [...]string{"v", "q", "d", "s", "h", "b", "z", "p"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return Register{}, noRegister(name, true)
		}
	}
	return Register{}, noRegister(name, false)
}
