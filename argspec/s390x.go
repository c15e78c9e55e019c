// SPDX-License-Identifier: BSD-2-Clause

package argspec

// Words of struct user_pt_regs in arch/s390/include/uapi/asm/ptrace.h, with
// which struct pt_regs begins: args[1], psw (mask, address), gprs[16].
const (
	s390xPC  = 2
	s390xGPR = 3
)

// parseS390X parses an operand of s390x:
//
//	%rN  N  N(%rN)  N(%rX,%rB)  FUNCTION
//
// In an address, the general register 0 counts as 0.
func parseS390X(p *parser) error {
	p.skipBlanks()
	if p.peek() == '%' {
		p.pos++
		r, err := p.s390xNamed(lower(p.word()))
		if err == nil {
			p.register(r)
		}
		return err
	}
	var displacement value
	if p.peek() != '(' || isDigit(p.peekAt(1)) {
		var err error
		if displacement, err = p.expression(); err != nil {
			return err
		}
	}
	if !p.accept('(') {
		if displacement.addresses != 0 {
			// The compiler writes an address so, and also the memory there.
			return p.functionAddress(displacement)
		}
		p.constant(displacement.number)
		return nil
	}
	base, err := p.s390xAddress()
	if err != nil {
		return err
	}
	var index Register
	if p.accept(',') {
		index = base
		if base, err = p.s390xAddress(); err != nil {
			return err
		}
	}
	if !p.accept(')') {
		return p.malformed()
	}
	return p.address(base, index, 1, displacement)
}

// s390xAddress parses a register in an address: %rN, or the number alone, or
// nothing. The zero Register is register 0 or nothing.
func (p *parser) s390xAddress() (Register, error) {
	p.skipBlanks()
	if p.peek() == ',' {
		return Register{}, nil
	}
	p.accept('%')
	name := lower(p.word())
	if n, ok := numbered(name, "", 15); ok {
		name = s390xNames[n]
	}
	r, err := p.s390xNamed(name)
	if r.slot == s390xGPR {
		return Register{}, err
	}
	return r, err
}

// s390xNamed returns the register of a name in lower case.
func (p *parser) s390xNamed(name string) (Register, error) {
	if n, ok := numbered(name, "r", 15); ok {
		return p.general(name, 8, s390xGPR+n), nil
	}
	if _, ok := numbered(name, "f", 15); ok {
		return Register{}, noRegister(name, true)
	}
	if _, ok := numbered(name, "v", 31); ok {
		return Register{}, noRegister(name, true)
	}
	for _, prefix := range [...]string{"a", "c"} {
		if _, ok := numbered(name, prefix, 15); ok {
			return Register{}, unavailable(errNotSaved, "access or control register "+name)
		}
	}
	return Register{}, noRegister(name, false)
}

var s390xNames = [16]string{
	"r0", "r1", "r2", "r3", "r4", "r5", "r6", "r7",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15",
}
