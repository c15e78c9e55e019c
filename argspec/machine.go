// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strconv"
	"strings"
	"sync"
)

type machine struct {
	// names has the registers that operands can name.
	names func() *registers
	// pc is the name of the register that holds the address of the site at a
	// hit, and pcSlot its word.
	pc     string
	pcSlot uint8
	// pairs are the registers of a 32-bit machine in the order of the
	// compilers: a value in two registers is in neighbours, with its low half
	// in the first.
	pairs string
}

// named is what a name stands for: a register that the kernel saves, the zero
// Register for one that always reads as 0, or one of an unsaved kind.
type named struct {
	Register
	unsaved string
}

// registers is a hash table of a machine's registers by their names, with
// linear probing. A map would take a third of the time of Decode.
type registers struct {
	keys   [1 << 10]uint64 // 0 for none
	values [1 << 10]*named
}

// place returns where the register of a name is, or would be.
func (r *registers) place(name string) (at, key uint64) {
	for i := 0; i < len(name) && i < 8; i++ {
		key = key<<8 | uint64(name[i])
	}
	at = key * 0x9e37_79b9_7f4a_7c15 >> 54
	for r.keys[at] != key && r.keys[at] != 0 {
		at = (at + 1) % uint64(len(r.keys))
	}
	return at, key
}

// find returns nil if a name in lower case, without sigils, is no register's.
func (r *registers) find(name string) *named {
	at, _ := r.place(name)
	return r.values[at]
}

func (r *registers) add(name string, n named) {
	at, key := r.place(name)
	r.keys[at], r.values[at] = key, &n
}

const vector, system = "vector or floating point register ", "register "

// machines has a row for each machine. After the names of registers stands the
// word of the struct pt_regs in the kernel's arch/*/include/uapi/asm/ptrace.h
// that has the first of them.
var machines = [...]*machine{
	elf.EM_X86_64: {pc: "rip", pcSlot: x86IP, names: x86_64Names},
	elf.EM_386: {pc: "eip", pcSlot: x86IP, names: x86Names(elf.EM_386),
		pairs: "eax edx ecx ebx esi edi ebp"},
	// struct user_pt_regs: regs[31], sp, pc, pstate. Some compilers write x31
	// for sp; xzr has no number then.
	elf.EM_AARCH64: {pc: "pc", pcSlot: arm64PC, names: names{
		machine: elf.EM_AARCH64, size: 8,
		saved: "x0-31=0 sp=31 lr=30 fp=29 ip0-1=16 pc=32", half: "w0-31=0 wsp=31", zero: "xzr wzr",
		vector: "v0-31 q0-31 d0-31 s0-31 h0-31 b0-31 z0-31 p0-31",
	}.once()},
	// uregs[18]: r0 to r15, cpsr, orig_r0. Register.Slot says where a 64-bit
	// kernel has them. The other names are of the procedure call standard.
	elf.EM_ARM: {pc: "pc", pcSlot: armPC, names: names{
		machine: elf.EM_ARM, size: 4,
		saved:  "r0-15=0 a1-4=0 v1-8=4 sb=9 sl=10 fp=11 ip=12 sp=13 lr=14 pc=15",
		vector: "s0-31 d0-31 q0-31",
	}.once(), pairs: "r0 r1 r2 r3 r4 r5 r6 r7 r8 r9 r10 r11 r12"},
	// struct user_pt_regs: args[1], psw (mask, address), gprs[16].
	elf.EM_S390: {pc: "pc", pcSlot: 2, names: names{
		machine: elf.EM_S390, size: 8,
		saved: "r0-15=3", vector: "f0-15 v0-31", system: "a0-15 c0-15",
	}.once()},
	// gpr[32], nip, msr, orig_gpr3, ctr, link, xer, ccr.
	elf.EM_PPC64: {pc: "pc", pcSlot: 32, names: names{
		machine: elf.EM_PPC64, size: 8,
		saved:  "r0-31=0 sp=1 toc=2 rtoc=2 ctr=35 lr=36 xer=37",
		vector: "f0-31 v0-31 vr0-31 vs0-63",
	}.once()},
	elf.EM_RISCV: riscv(8),
	// struct user_pt_regs: regs[32], orig_a0, csr_era.
	elf.EM_LOONGARCH: {pc: "pc", pcSlot: 33, names: names{
		machine: elf.EM_LOONGARCH, size: 8,
		saved: "r1-31=1 a0-7=4 t0-8=12 s0-8=23 ra=1 tp=2 sp=3 u0=21 fp=22 s9=22",
		zero:  "r0 zero", vector: "f0-31 fa0-31 ft0-31 fs0-31 fcc0-31 vr0-31 xr0-31",
	}.once()},
}

// riscv returns a machine with registers of a size. The words are those of
// struct user_regs_struct: pc in the place of x0, x1 to x31.
func riscv(size uint8) *machine {
	return &machine{pc: "pc", pcSlot: 0, names: names{
		machine: elf.EM_RISCV, size: size,
		saved: "x1-31=1 a0-7=10 s0-1=8 s2-11=18 t0-2=5 t3-6=28 ra=1 sp=2 gp=3 tp=4 fp=8 pc=0",
		zero:  "x0 zero", vector: "f0-31 v0-31 ft0-31 fs0-31 fa0-31",
	}.once()}
}

var riscv32 = riscv(4)

// unknown stands for all other machines.
var unknown = &machine{names: names{}.once()}

// names are the names of a machine's registers. x0-31=4 are x0 to x31, in words
// from 4 on.
type names struct {
	machine elf.Machine
	size    uint8  // of those that are saved
	saved   string // all of a register
	half    string // the lower half of one
	zero    string // those that always read as 0
	vector  string // those that are not saved
	system  string
}

func (ns names) once() func() *registers { return sync.OnceValue(ns.all) }

func (ns names) all() *registers {
	all := new(registers)
	add := func(text, unsaved string, size uint8) {
		each(text, func(name string, slot int) {
			n := named{unsaved: unsaved}
			if size > 0 {
				n.Register = Register{Name: name, size: size, slot: uint8(slot),
					machine: ns.machine}
			}
			all.add(name, n)
		})
	}
	add(ns.saved, "", ns.size)
	add(ns.half, "", ns.size/2)
	add(ns.zero, "", 0)
	add(ns.vector, vector, 0)
	add(ns.system, system, 0)
	return all
}

// each calls f for each name of a text, with its word.
func each(text string, f func(name string, slot int)) {
	for _, entry := range strings.Fields(text) {
		entry, first, _ := strings.Cut(entry, "=")
		slot, _ := strconv.Atoi(first)
		from, to, several := strings.Cut(entry, "-")
		if !several {
			f(entry, slot)
			continue
		}
		const digits = "0123456789"
		prefix, suffix := strings.TrimRight(from, digits), strings.TrimLeft(to, digits)
		n, _ := strconv.Atoi(from[len(prefix):])
		for last, _ := strconv.Atoi(strings.TrimSuffix(to, suffix)); n <= last; n, slot = n+1, slot+1 {
			f(prefix+strconv.Itoa(n)+suffix, slot)
		}
	}
}

func (p *parser) setMachine() {
	narrow := p.header.Class == elf.ELFCLASS32
	p.wordSize, p.registerSize, p.address32 = 8, 8, false
	switch m := p.header.Machine; {
	case m == elf.EM_386, m == elf.EM_ARM, m == elf.EM_RISCV && narrow:
		p.wordSize, p.registerSize, p.address32 = 4, 4, true
	case narrow: // x32 and its like: the registers have all their 64 bits
		p.wordSize = 4
	}
	p.machine = unknown
	switch m := p.header.Machine; {
	case m == elf.EM_RISCV && narrow:
		p.machine = riscv32
	case m == elf.EM_S390 && narrow: // 31-bit programs
	case int(m) < len(machines) && machines[m] != nil:
		p.machine = machines[m]
	}
	p.names = p.machine.names()
}

// parse parses the operand in the syntax of the machine, in the file of its
// name. (Methods in the table would have the parser allocated.)
func (p *parser) parse() {
	switch machine := p.header.Machine; {
	case p.machine == unknown:
		p.fail(errMachine, machine.String())
	case machine == elf.EM_X86_64, machine == elf.EM_386:
		p.parseX86()
	case machine == elf.EM_AARCH64:
		p.parseARM64()
	case machine == elf.EM_ARM:
		p.parseARM()
	case machine == elf.EM_S390:
		p.parseS390X()
	case machine == elf.EM_PPC64:
		p.parsePPC64()
	case machine == elf.EM_RISCV:
		p.parseRISCV()
	case machine == elf.EM_LOONGARCH:
		p.parseLoongArch()
	}
}

func (p *parser) named(name string) Register {
	n := p.names.find(name)
	switch {
	case n != nil && n.unsaved == "":
		return n.Register
	case n != nil:
		p.fail(errNotSaved, n.unsaved+name)
	case name == "":
		p.fail(errSyntax, "a register is missing")
	default:
		p.fail(errRegister, quote(name))
	}
	return Register{}
}

func (p *parser) nextRegister() Register {
	p.skipBlanks()
	return p.named(lower(p.word()))
}

// registerAlone parses the word that comes next as the value of a register. It
// takes nothing and returns false for a word that is none: without sigils, that
// is a symbol.
func (p *parser) registerAlone() bool {
	start := p.pos
	word := lower(p.word())
	if p.names.find(word) == nil || isNamePart(p.peek()) {
		p.pos = start
		return false
	}
	p.setRegister(p.named(word))
	return true
}

// high returns the register that holds the high half of a value in two
// registers of which r holds the low half, or the zero Register.
func (p *parser) high(r Register) Register {
	low := Register{}
	for _, name := range strings.Fields(p.machine.pairs) {
		high := p.named(name)
		if !low.isZero() && low.slot == r.slot {
			return high
		}
		low = high
	}
	return Register{}
}

// instructionPointer holds the address of the site at a hit.
func (p *parser) instructionPointer() Register {
	return Register{Name: p.machine.pc, size: uint8(p.registerSize), slot: p.machine.pcSlot,
		machine: p.header.Machine}
}

// address makes the argument a value in memory whose displacement must be a
// number, or an absolute address.
func (p *parser) address(base, index Register, scale uint8, displacement value) {
	p.memory(base, index, scale, p.absolute(displacement))
}

// relocationFunction fails for #:got_lo12:, %pcrel_lo() and their kind.
func (p *parser) relocationFunction(name string) {
	if isThreadLocal(name) {
		p.fail(errThreadLocal, name)
	}
	p.fail(errRelocation, name)
}
