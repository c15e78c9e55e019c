// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"slices"
	"strings"
	"sync"
)

// parseX86 parses an operand of x86-64 or i386 in the AT&T syntax:
//
//	%R  $N  N(%R)  N(%R,%R,S)  N(,%R,S)  SYM+N(%rip)  SYM+N@GOTOFF(%R)
//
// N is any expression, or missing. $N can be a calculation, $N*$N-($N+$N). What
// cannot be AT&T is left to parseIntel. A symbol alone is the memory there.
func (p *parser) parseX86() {
	p.skipBlanks()
	if p.isCalculation() {
		p.immediates = true
		p.constantExpression()
		return
	}
	switch p.peek() {
	case '$':
		p.pos++
		p.constantExpression()
	case '*':
		p.fail(errIndirect, "")
	case '%':
		p.pos++
		p.skipBlanks()
		name := lower(p.word())
		if !p.accept(':') {
			p.setRegister(p.named(name))
			return
		}
		p.x86Segment(name)
		p.x86Memory()
		if address := p.arg.Constant; p.arg.Kind == Constant {
			p.arg.Constant = 0
			p.memory(Register{}, Register{}, 1, address)
		}
	default:
		if strings.IndexByte(p.text, '%') < 0 && p.isIntel() {
			p.parseIntel()
		} else {
			p.x86Memory()
		}
	}
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

// x86Segment fails for segments that do not begin at 0, as all but fs and gs
// do, and for those that do not exist.
func (p *parser) x86Segment(name string) {
	switch {
	case name == "fs" || name == "gs":
		p.fail(errThreadLocal, "segment "+name)
	case !isX86Segment(name):
		p.fail(errRegister, quote(name))
	}
}

func isX86Segment(name string) bool {
	return len(name) == 2 && name[1] == 's' && strings.IndexByte("cdefgs", name[0]) >= 0
}

// x86Memory parses DISPLACEMENT(BASE,INDEX,SCALE), of which a part may be
// missing.
func (p *parser) x86Memory() {
	var displacement value
	ahead := p.scanner
	isOpen := ahead.accept('(')
	ahead.skipBlanks()
	if !isOpen || ahead.peek() != '%' && ahead.peek() != ',' {
		displacement = p.expression() // the parenthesis is one of this
	}
	if !p.accept('(') {
		switch {
		case !p.done():
			p.malformed()
		case displacement.addresses != 0:
			p.address(Register{}, Register{}, 1, displacement)
		default:
			p.x86Number(displacement.number)
		}
		return
	}
	var base, index Register
	scale := uint8(1)
	p.skipBlanks()
	if p.peek() == '%' {
		base = p.x86Sigil()
	}
	if p.accept(',') {
		p.skipBlanks()
		index = p.x86Sigil()
		if p.accept(',') {
			if p.skipBlanks(); p.peek() != ')' {
				scale = p.x86Scale(p.expression())
			}
		}
	}
	p.expect(')')
	p.x86Address(displacement, base, index, scale)
}

// x86Number makes the argument what a number alone is: memory at this address
// in the AT&T syntax, a constant in the Intel syntax. Where a program cannot
// have memory that an operand could name, it is a constant in both.
func (p *parser) x86Number(n uint64) {
	const lowest, end = 4096, 1 << 31
	switch {
	case n < lowest || n >= end || p.siteSyntax() == '[':
		p.setConstant(n)
	case p.siteSyntax() == '%':
		p.memory(Register{}, Register{}, 1, n)
	default:
		p.fail(errUnclear, "")
	}
}

// siteSyntax returns '%' if an argument of the site can only be AT&T, '[' if
// one can only be Intel, else '?'.
func (p *parser) siteSyntax() byte {
	for rest := p.all; p.syntax == 0; {
		ahead := *p
		ahead.text, rest = nextArgument(rest)
		_, _, _, ahead.pos = parseSize(ahead.text)
		switch {
		case ahead.peek() == '$' || strings.IndexByte(ahead.text, '%') >= 0:
			p.syntax = '%'
		case ahead.isIntel():
			p.syntax = '['
		case rest == "":
			p.syntax = '?'
		}
	}
	return p.syntax
}

func (p *parser) x86Sigil() Register {
	p.expect('%')
	p.skipBlanks()
	name := lower(p.word())
	if name == "riz" || name == "eiz" { // the assembler's way to write an index that is none
		return Register{}
	}
	return p.named(name)
}

func (p *parser) x86Scale(v value) uint8 {
	if v.addresses != 0 || !slices.Contains([]uint64{1, 2, 4, 8}, v.number) {
		p.fail(errSyntax, "scale is not 1, 2, 4 or 8")
	}
	return uint8(v.number)
}

// x86Address makes the argument the memory at base + index*scale +
// displacement. A symbol in the displacement is allowed if rip is the base, and
// else only if the file runs at its own addresses (ET_EXEC).
func (p *parser) x86Address(displacement value, base, index Register, scale uint8) {
	switch {
	case !isX86Address(base, index):
		p.fail(errRegister, "address of "+base.Name+" and "+index.Name)
	case displacement.inGOT && index.isZero() && (isX86IP(base) ||
		p.header.Machine == elf.EM_386 && !base.isZero()):
		// The content of the table, which is an address, is the value.
		displacement.inGOT = false
		p.numberOrAddress(displacement)
	case displacement.addresses == 1 && isX86IP(base):
		p.relativeMemory(base, displacement)
	default:
		p.address(base, index, scale, displacement)
	}
}

func isX86IP(r Register) bool { return !r.isZero() && r.slot == x86IP }

// isX86Address reports whether the two registers can make an address: both of
// 64 or both of 32 bits, or one missing. (No compiler uses 16-bit addresses.)
func isX86Address(base, index Register) bool {
	if isX86IP(index) || isX86IP(base) && !index.isZero() {
		return false
	}
	width := max(base.size, index.size)
	return (base.isZero() || base.size == width) && (index.isZero() || index.size == width) &&
		(width == 0 || width >= 4)
}

// isIntel reports whether an operand without any % is in the Intel syntax (gcc
// -masm=intel): it has brackets, or begins with a register or one of its words.
func (p *parser) isIntel() bool {
	if strings.IndexByte(p.text, '[') >= 0 {
		return true
	}
	ahead := p.scanner
	word := lower(ahead.word())
	if isNamePart(ahead.peek()) {
		return false
	}
	ahead.skipBlanks()
	switch {
	case isIntelSize(word):
		return strings.EqualFold(ahead.word(), "ptr")
	case word == "offset":
		return isNameStart(ahead.peek())
	case isX86Segment(word):
		return ahead.peek() == ':'
	case !ahead.done() || !isIntelRegister(word) || word[0] == 'k' || word == "st":
		return false
	case strings.Contains(word, "mm"):
		return true
	case p.header.Machine == elf.EM_386 && p.file != nil:
		// i386's AT&T syntax writes a variable of that name just so; in the
		// Intel syntax no variable can have it.
		_, err := p.file.Symbol(word)
		return err != nil
	}
	return true
}

// isIntelSize knows the words before PTR.
func isIntelSize(word string) bool {
	return slices.Contains([]string{"byte", "word", "dword", "fword", "qword", "tbyte", "oword",
		"xmmword", "ymmword", "zmmword"}, word)
}

// intelContinues reports whether the blank between two pieces of text is one of
// those in "DWORD PTR [rax]" and "OFFSET FLAT:x".
func intelContinues(before, next string) bool {
	last := before[strings.LastIndexAny(before, blanks+"@")+1:]
	if strings.EqualFold(last, "ptr") || strings.EqualFold(last, "offset") {
		return true
	}
	ahead := scanner{text: next}
	return strings.EqualFold(ahead.word(), "ptr") && !isNamePart(ahead.peek())
}

// intelSum is an address in the Intel syntax as far as it is read.
type intelSum struct {
	base, index Register
	scale       uint8
	rest        value
}

// parseIntel parses an operand of x86 in the Intel syntax:
//
//	R  N  OFFSET FLAT:SYM  DWORD PTR N[R+R*S]  QWORD PTR SYM[rip+N]  [R-N]
//
// Everything in an address, inside the brackets and outside, is added up.
func (p *parser) parseIntel() {
	memory := false
	for {
		p.skipBlanks()
		start := p.pos
		word := lower(p.word())
		switch {
		case isIntelSize(word):
			memory = true
			continue
		case word == "ptr" && memory:
			continue
		case word == "offset":
			start = p.pos
			if p.skipBlanks(); !strings.EqualFold(p.word(), "flat") || !p.accept(':') {
				p.pos = start
			}
			p.constantExpression()
			return
		case isX86Segment(word) && p.accept(':'):
			p.x86Segment(word)
			memory = true
			continue
		}
		p.pos = start
		break
	}
	sum := intelSum{scale: 1}
	brackets := p.intelTerms(&sum, false)
	switch {
	case memory || brackets || sum.rest.addresses != 0:
		p.x86Address(sum.rest, sum.base, sum.index, sum.scale)
	case !sum.index.isZero() || !sum.base.isZero() && sum.rest.number != 0:
		p.malformed()
	case !sum.base.isZero():
		p.setRegister(sum.base)
	default:
		p.setConstant(sum.rest.number)
	}
}

// intelTerms adds up terms until the end, or the bracket that closes them, and
// reports whether there were brackets.
func (p *parser) intelTerms(sum *intelSum, inside bool) (brackets bool) {
	complete := false // the last thing read was a term, not an operator
	for p.err == nil {
		p.skipBlanks()
		switch c := p.peek(); {
		case p.done() && complete && !inside:
			return brackets
		case c == ']' && complete && inside:
			p.pos++
			return brackets
		case c == '[' && !inside:
			p.pos++
			brackets, complete = true, true
			p.intelTerms(sum, true)
		case c == '+' && complete:
			p.pos++
			complete = false
		case c == '-' || !complete && c != '+':
			complete = true
			p.intelTerm(sum)
		default:
			p.malformed()
		}
	}
	return brackets
}

// intelTerm adds one term with its sign: R, R*S, S*R or an expression.
func (p *parser) intelTerm(sum *intelSum) {
	ahead, scale := *p, uint64(0)
	if isDigit(p.peek()) {
		if n := ahead.number(); ahead.err == nil && ahead.accept('*') {
			scale = n
			ahead.skipBlanks()
		} else {
			ahead = *p
		}
	}
	word := lower(ahead.word())
	if !isIntelRegister(word) || isNamePart(ahead.peek()) {
		sum.rest = p.combine('+', sum.rest, p.binary(precedenceBits))
		return
	}
	p.pos = ahead.pos
	r := p.named(word)
	if scale == 0 && p.accept('*') {
		p.skipBlanks()
		scale = p.number()
	}
	switch {
	case scale == 0 && sum.base.isZero():
		sum.base = r
	case !sum.index.isZero():
		p.fail(errSyntax, "three registers")
	default:
		sum.index = r
		if scale != 0 {
			sum.scale = p.x86Scale(value{number: scale})
		}
	}
}

// x86Registers are the names of each word of a 64-bit kernel's struct pt_regs
// and of its parts: of 8, 4 and 2 bytes, of the lowest byte, and others of one
// byte. A 32-bit program's registers are there too, eax as the low half of rax.
var x86Registers = [...]string{
	"r15 r15d r15w r15b r15l", "r14 r14d r14w r14b r14l", "r13 r13d r13w r13b r13l",
	"r12 r12d r12w r12b r12l", "rbp ebp bp bpl", "rbx ebx bx bl bh", "r11 r11d r11w r11b r11l",
	"r10 r10d r10w r10b r10l", "r9 r9d r9w r9b r9l", "r8 r8d r8w r8b r8l", "rax eax ax al ah",
	"rcx ecx cx cl ch", "rdx edx dx dl dh", "rsi esi si sil", "rdi edi di dil",
	"", x86IP: "rip eip", "", "", "rsp esp sp spl",
}

const x86IP = 16

var x86_64Names = x86Names(elf.EM_X86_64)

// x86Names returns the names of x86-64's registers, or of i386's.
func x86Names(machine elf.Machine) func() *registers {
	return sync.OnceValue(func() *registers {
		all := names{
			vector: "xmm0-31 ymm0-31 zmm0-31 tmm0-31 mm0-31 k0-31 st",
			system: "cs ds es fs gs ss cr0-15 db0-15 dr0-15 bnd0-15 tr0-15 " +
				"r16-31 r16-31d r16-31w r16-31b", // of APX
		}.all()
		for slot, parts := range x86Registers {
			for i, name := range strings.Fields(parts) {
				r := Register{Name: name, size: [...]uint8{8, 4, 2, 1, 1}[i], slot: uint8(slot),
					machine: machine}
				if name[len(name)-1] == 'h' {
					r.Shift = 8
				}
				// 32-bit code has no r8 to r15, and no names for 64 bits and
				// for the lowest byte of rsi, rdi, rbp and rsp.
				if machine == elf.EM_X86_64 || name[0] != 'r' && (r.size > 1 || len(name) == 2) {
					all.add(name, named{Register: r})
				}
			}
		}
		return all
	})
}

// isIntelRegister reports whether a word is a register in the Intel syntax, of
// either machine.
func isIntelRegister(word string) bool {
	r := x86_64Names().find(word)
	return r != nil && r.unsaved != system
}
