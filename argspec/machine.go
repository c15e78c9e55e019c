// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"errors"
)

// machine is what the parser has to know of a machine beside its syntax.
type machine struct {
	// word is the size of an operand that has none and is not a register.
	word int
	// register is the size of a general register: a larger value fills two.
	register int
	// address32: address arithmetic wraps at 32 bits whatever the operand.
	address32 bool
}

func machineOf(t *target) machine {
	narrow := t.class == elf.ELFCLASS32
	switch t.machine {
	case elf.EM_386, elf.EM_ARM:
		return machine{word: 4, register: 4, address32: true}
	case elf.EM_RISCV:
		if narrow {
			return machine{word: 4, register: 4, address32: true}
		}
	default:
		if narrow {
			// x32 and its like: the registers have all their 64 bits.
			return machine{word: 4, register: 8}
		}
	}
	return machine{word: 8, register: 8}
}

// parseSyntax parses the operand in the way of the target's machine. Everything
// that is particular to one is in the file of its name.
func (p *parser) parseSyntax() error {
	switch p.target.machine {
	case elf.EM_X86_64, elf.EM_386:
		return parseX86(p)
	case elf.EM_AARCH64:
		return parseARM64(p)
	case elf.EM_ARM:
		return parseARM(p)
	case elf.EM_S390:
		if p.target.class != elf.ELFCLASS32 { // 31-bit programs
			return parseS390X(p)
		}
	case elf.EM_PPC64:
		return parsePPC64(p)
	case elf.EM_RISCV:
		return parseRISCV(p)
	case elf.EM_LOONGARCH:
		return parseLoongArch(p)
	}
	return unavailable(errMachine, p.target.machine.String())
}

// named returns the register of a name in lower case, without sigils. A
// register that always reads as 0 is the zero Register.
func (p *parser) named(name string) (Register, error) {
	switch p.target.machine {
	case elf.EM_X86_64, elf.EM_386:
		return p.x86Named(name)
	case elf.EM_AARCH64:
		return p.arm64Named(name)
	case elf.EM_ARM:
		return p.armNamed(name)
	case elf.EM_S390:
		return p.s390xNamed(name)
	case elf.EM_PPC64:
		return p.ppc64Named(name)
	case elf.EM_RISCV:
		return p.riscvNamed(name)
	case elf.EM_LOONGARCH:
		return p.loongArchNamed(name)
	}
	return Register{}, noRegister(name, false)
}

// high returns the register that holds the high half of a value in two
// registers of which r holds the low half, or the zero Register.
func (p *parser) high(r Register) Register {
	switch p.target.machine {
	case elf.EM_386:
		return p.i386High(r)
	case elf.EM_ARM:
		return p.armHigh(r)
	}
	return Register{}
}

// instructionPointer returns the register that holds the address of the site at
// a hit.
func (p *parser) instructionPointer() Register {
	switch p.target.machine {
	case elf.EM_X86_64:
		return p.general("rip", 8, x86IP)
	case elf.EM_386:
		return p.general("eip", 4, x86IP)
	case elf.EM_AARCH64:
		return p.general("pc", 8, arm64PC)
	case elf.EM_ARM:
		return p.general("pc", 4, armPC)
	case elf.EM_S390:
		return p.general("pc", 8, s390xPC)
	case elf.EM_PPC64:
		return p.general("pc", 8, ppc64PC)
	case elf.EM_RISCV:
		return p.general("pc", p.machine.register, riscvPC)
	case elf.EM_LOONGARCH:
		return p.general("pc", p.machine.register, loongArchPC)
	}
	return Register{}
}

// general returns a general register of the target's machine.
func (p *parser) general(name string, size, slot int) Register {
	return Register{Name: name, size: uint8(size), slot: uint8(slot), machine: p.target.machine}
}

// registerOrSymbol parses the word that comes next as a register, and leaves it
// where it is (false) if the machine has none of that name: in a syntax without
// sigils it is a symbol then.
func (p *parser) registerOrSymbol() (bool, error) {
	start := p.pos
	word := p.word()
	if !isNamePart(p.peek()) {
		r, err := p.named(lower(word))
		if err == nil {
			p.register(r)
			return true, nil
		}
		if !errors.Is(err, errRegister) {
			return true, err
		}
	}
	p.pos = start
	return false, nil
}

// address makes the argument a value in memory whose displacement must be a
// number, or an absolute address.
func (p *parser) address(base, index Register, scale uint8, displacement value) error {
	number, err := p.absolute(displacement)
	if err == nil {
		p.memory(base, index, scale, number)
	}
	return err
}

// noRegister returns the error for a name that is not a general register of the
// machine: vector registers are told from what does not exist at all.
func noRegister(name string, vector bool) error {
	switch {
	case vector:
		return unavailable(errNotSaved, "vector or floating point register "+name)
	case name == "":
		return unavailable(errSyntax, "a register is missing")
	}
	return unavailable(errRegister, quote(name))
}

// relocationFunction returns the error for #:got_lo12:, %pcrel_lo() and their
// kind.
func relocationFunction(name string) error {
	if isThreadLocal(name) {
		return unavailable(errThreadLocal, name)
	}
	return unavailable(errRelocation, name)
}
