// SPDX-License-Identifier: BSD-2-Clause

package argspec

// The words of the pc and of the thread pointer, see riscvNamed.
const (
	riscvPC = 0
	riscvTP = 4
)

// parseRISCV parses an operand of RISC-V, 64 or 32 bits wide:
//
//	R (ABI name or xN)  N  N(R)  %lo(SYM+N)(R)  %tprel_lo(SYM+N)(R)
func parseRISCV(p *parser) error {
	p.skipBlanks()
	c := p.peek()
	if c == '%' {
		return p.riscvLow()
	}
	if isLetter(c) {
		if ok, err := p.registerOrSymbol(); ok {
			return err
		}
	}
	var displacement value
	if c != '(' || isDigit(p.peekAt(1)) {
		var err error
		if displacement, err = p.expression(); err != nil {
			return err
		}
	}
	if !p.accept('(') {
		if p.skipBlanks(); !p.done() {
			return p.malformed()
		}
		return p.numberOrAddress(displacement)
	}
	p.skipBlanks()
	base, err := p.riscvNamed(lower(p.word()))
	if err != nil {
		return err
	}
	if !p.accept(')') {
		return p.malformed()
	}
	return p.address(base, Register{}, 1, displacement)
}

// riscvLow parses %lo(SYM+N)(R), the second half of an access to an absolute
// address of which R holds the first, %hi(SYM+N); or %tprel_lo(SYM+N)(R), the
// same for a thread-local variable. R cannot be relied on: where the linker
// found the symbol near gp or tp, it deleted the instruction that sets R
// without knowing of this text. So the symbol itself is taken. Other functions
// cannot be undone.
func (p *parser) riscvLow() error {
	p.pos++
	var err error
	switch function := p.name(); function {
	case "lo":
		err = p.riscvAbsolute()
	case "tprel_lo":
		err = p.threadLocalMemory(p.general("tp", p.machine.register, riscvTP))
	default:
		return relocationFunction("%" + function)
	}
	if err != nil {
		return err
	}
	if !p.accept('(') {
		return p.malformed()
	}
	p.skipBlanks()
	if _, err := p.riscvNamed(lower(p.word())); err != nil {
		return err
	}
	if !p.accept(')') {
		return p.malformed()
	}
	return nil
}

// riscvAbsolute parses the parentheses of %lo(SYM+N).
func (p *parser) riscvAbsolute() error {
	if !p.accept('(') {
		return p.malformed()
	}
	address, err := p.expression()
	switch {
	case err != nil:
		return err
	case !p.accept(')'):
		return p.malformed()
	case !p.isAbsolute():
		return relocationFunction("%lo")
	}
	return p.address(Register{}, Register{}, 1, address)
}

// riscvNamed returns the register of a name in lower case, the zero Register
// for zero and x0. Register xN is word N of struct user_regs_struct in
// arch/riscv/include/uapi/asm/ptrace.h, with which struct pt_regs begins; pc
// has the place of x0.
func (p *parser) riscvNamed(name string) (Register, error) {
	n := riscvNumber(name)
	switch {
	case n == 0:
		return Register{}, nil
	case n > 0:
		return p.general(name, p.machine.register, n), nil
	case name == "pc":
		return p.general(name, p.machine.register, riscvPC), nil
	}
	for _, prefix := range [...]string{"f", "v", "ft", "fs", "fa"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return Register{}, noRegister(name, true)
		}
	}
	return Register{}, noRegister(name, false)
}

// riscvNumber returns N for the ABI's name of xN, -1 for other names.
func riscvNumber(name string) int {
	if n, ok := numbered(name, "x", 31); ok {
		return n
	}
	if n, ok := numbered(name, "a", 7); ok {
		return 10 + n
	}
	if n, ok := numbered(name, "s", 11); ok {
		if n < 2 {
			return 8 + n
		}
		return 16 + n
	}
	if n, ok := numbered(name, "t", 6); ok {
		if n < 3 {
			return 5 + n
		}
		return 25 + n
	}
	switch name {
	case "zero":
		return 0
	case "ra":
		return 1
	case "sp":
		return 2
	case "gp":
		return 3
	case "tp":
		return riscvTP
	case "fp":
		return 8
	}
	return -1
}
