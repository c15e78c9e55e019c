// SPDX-License-Identifier: BSD-2-Clause

package argspec

// The words of the thread pointer and of csr_era, see loongArchNamed.
const (
	loongArchTP = 2
	loongArchPC = 33
)

// parseLoongArch parses an operand of LoongArch:
//
//	$rN or ABI name  N  $rN,N  $rN,$rN  [$rN]  [$rN, N]  [sp, N]
//	$rN,%le_lo12_r(SYM+N)
func parseLoongArch(p *parser) error {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '[':
		p.pos++
		base, err := p.loongArchSigil()
		if err != nil {
			return err
		}
		if p.accept(',') {
			err = p.loongArchOffset(base)
		} else {
			p.memory(base, Register{}, 1, 0)
		}
		if err == nil && !p.accept(']') {
			err = p.malformed()
		}
		return err
	case c == '$':
		base, err := p.loongArchSigil()
		if err != nil {
			return err
		}
		if p.accept(',') {
			return p.loongArchOffset(base)
		}
		p.register(base)
		return nil
	case c == '%':
		p.pos++
		return relocationFunction("%" + p.name())
	case isLetter(c):
		if ok, err := p.registerOrSymbol(); ok {
			return err
		}
	}
	return p.constantExpression()
}

// loongArchOffset parses what is added to the base: a register or a number.
func (p *parser) loongArchOffset(base Register) error {
	p.skipBlanks()
	switch c := p.peek(); {
	case c == '%':
		p.pos++
		function := p.name()
		if function == "le_lo12_r" {
			// The second half of the offset of a thread-local variable. The
			// register cannot be relied on, as with RISC-V's %tprel_lo().
			return p.threadLocalMemory(p.general("tp", p.machine.register, loongArchTP))
		}
		return relocationFunction("%" + function)
	case c == '$':
		index, err := p.loongArchSigil()
		if err == nil {
			p.memory(base, index, 1, 0)
		}
		return err
	case isLetter(c):
		start := p.pos
		if index, err := p.loongArchSigil(); err == nil {
			p.memory(base, index, 1, 0)
			return nil
		}
		p.pos = start
	}
	displacement, err := p.expression()
	if err != nil {
		return err
	}
	return p.address(base, Register{}, 1, displacement)
}

// loongArchSigil parses a register, with or without its $.
func (p *parser) loongArchSigil() (Register, error) {
	p.accept('$')
	p.skipBlanks()
	return p.loongArchNamed(lower(p.word()))
}

// loongArchNamed returns the register of a name in lower case, the zero
// Register for r0. Register N is word N of struct user_pt_regs in
// arch/loongarch/include/uapi/asm/ptrace.h, with which struct pt_regs begins:
// regs[32], orig_a0, csr_era.
func (p *parser) loongArchNamed(name string) (Register, error) {
	n := loongArchNumber(name)
	switch {
	case n == 0:
		return Register{}, nil
	case n > 0:
		return p.general(name, p.machine.register, n), nil
	}
	for _, prefix := range [...]string{"f", "fa", "ft", "fs", "fcc", "vr", "xr"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return Register{}, noRegister(name, true)
		}
	}
	return Register{}, noRegister(name, false)
}

// loongArchNumber returns N for the ABI's name of rN, -1 for other names.
func loongArchNumber(name string) int {
	if n, ok := numbered(name, "r", 31); ok {
		return n
	}
	if n, ok := numbered(name, "a", 7); ok {
		return 4 + n
	}
	if n, ok := numbered(name, "t", 8); ok {
		return 12 + n
	}
	if n, ok := numbered(name, "s", 8); ok {
		return 23 + n
	}
	switch name {
	case "zero":
		return 0
	case "ra":
		return 1
	case "tp":
		return loongArchTP
	case "sp":
		return 3
	case "u0":
		return 21
	case "fp", "s9":
		return 22
	}
	return -1
}
