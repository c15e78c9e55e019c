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

func isX86IP(r Register) bool { return !r.isZero() && r.slot == x86IP }

// isX86Address reports whether the two registers can make an address: both of
// 64 or both of 32 bits, or one missing. (16-bit addresses do not exist in
// 64-bit code, and compilers do not use them in other.)
func isX86Address(base, index Register) bool {
	if isX86IP(index) || isX86IP(base) && !index.isZero() {
		return false
	}
	width := max(base.size, index.size)
	return (base.isZero() || base.size == width) &&
		(index.isZero() || index.size == width) &&
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

// isIntel reports whether an operand without any % is in the Intel syntax,
// which gcc -masm=intel writes: it has brackets, or begins with a register or
// one of the syntax's words.
func (p *parser) isIntel() bool {
	if strings.IndexByte(p.text, '[') >= 0 {
		return true
	}
	ahead := p.scanner
	word := lower(ahead.word())
	if isNamePart(ahead.peek()) {
		return false
	}
	switch ahead.skipBlanks(); {
	case isIntelSize(word):
		return strings.EqualFold(ahead.word(), "ptr")
	case word == "offset":
		return isNameStart(ahead.peek())
	case isX86Segment(word):
		return ahead.peek() == ':'
	case !ahead.done():
		return false
	case strings.Contains(word, "mm"):
		return isX86Vector(word)
	case !isX86General(word):
		return false
	}
	// i386's AT&T syntax writes a variable of that name just so; in the Intel
	// syntax no variable can have it.
	if p.target.machine == elf.EM_386 && p.target.symbols != nil {
		_, err := p.target.symbols.Symbol(word)
		return err != nil
	}
	return true
}

func isX86Segment(name string) bool {
	switch name {
	case "cs", "ds", "es", "fs", "gs", "ss":
		return true
	}
	return false
}

// isIntelSize recognises the words that stand before PTR.
func isIntelSize(word string) bool {
	switch word {
	case "byte", "word", "dword", "fword", "qword", "tbyte", "oword", "xmmword",
		"ymmword", "zmmword":
		return true
	}
	return false
}

// intelContinues reports whether the blank between two pieces of text is one of
// those in "DWORD PTR [rax]" and "OFFSET FLAT:x".
func intelContinues(before, next string) bool {
	last := before
	if i := strings.LastIndexAny(before, blanks+"@"); i >= 0 {
		last = before[i+1:]
	}
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
func parseIntel(p *parser) error {
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
			return p.constantExpression()
		case isX86Segment(word) && p.accept(':'):
			if err := x86Segment(word); err != nil {
				return err
			}
			memory = true
			continue
		}
		p.pos = start
		break
	}
	sum := intelSum{scale: 1}
	brackets, err := p.intelTerms(&sum, false)
	if err != nil {
		return err
	}
	switch {
	case memory || brackets || sum.rest.addresses != 0:
		return p.x86Address(sum.rest, sum.base, sum.index, sum.scale)
	case !sum.index.isZero() || !sum.base.isZero() && sum.rest.number != 0:
		return p.malformed()
	case !sum.base.isZero():
		p.register(sum.base)
	default:
		p.constant(sum.rest.number)
	}
	return nil
}

// intelTerms adds up terms until the end, or the bracket that closes them, and
// reports whether there were brackets.
func (p *parser) intelTerms(sum *intelSum, inside bool) (brackets bool, err error) {
	complete := false // the last thing read was a term, not an operator
	for err == nil {
		p.skipBlanks()
		switch c := p.peek(); {
		case p.done() && complete && !inside:
			return brackets, nil
		case c == ']' && complete && inside:
			p.pos++
			return brackets, nil
		case c == '[' && !inside:
			p.pos++
			brackets, complete = true, true
			_, err = p.intelTerms(sum, true)
		case c == '+' && complete:
			p.pos++
			complete = false
		case c == '-' || !complete && c != '+':
			complete = true
			err = p.intelTerm(sum)
		default:
			err = p.malformed()
		}
	}
	return brackets, err
}

// intelTerm adds one term with its sign: R, R*S, S*R or an expression.
func (p *parser) intelTerm(sum *intelSum) error {
	start := p.pos
	scale := uint64(0)
	if isDigit(p.peek()) {
		if number, err := p.number(); err == nil && p.accept('*') {
			scale = number
			p.skipBlanks()
		} else {
			p.pos = start
		}
	}
	word := lower(p.word())
	if word == "" || isNamePart(p.peek()) || !isX86General(word) && !isX86Vector(word) {
		p.pos = start
		v, err := p.binary(precedenceBits)
		if err == nil {
			sum.rest, err = combine('+', sum.rest, v)
		}
		return err
	}
	r, err := p.x86Named(word)
	if err != nil {
		return err
	}
	if scale == 0 && p.accept('*') {
		p.skipBlanks()
		if scale, err = p.number(); err != nil {
			return err
		}
	}
	switch {
	case scale == 0 && sum.base.isZero():
		sum.base = r
	case sum.index.isZero():
		sum.index = r
		switch scale {
		case 0:
		case 1, 2, 4, 8:
			sum.scale = uint8(scale)
		default:
			return unavailable(errSyntax, "scale is not 1, 2, 4 or 8")
		}
	default:
		return unavailable(errSyntax, "three registers")
	}
	return nil
}

// Words of struct pt_regs in arch/x86/include/uapi/asm/ptrace.h, the variant of
// 64-bit kernels: r15 is the first member, ss the last. A 32-bit program's
// registers are saved there too, eax as the low half of rax.
const (
	x86R15 = iota
	x86R14
	x86R13
	x86R12
	x86BP
	x86BX
	x86R11
	x86R10
	x86R9
	x86R8
	x86AX
	x86CX
	x86DX
	x86SI
	x86DI
	_ // orig_rax
	x86IP
	_ // cs
	_ // eflags
	x86SP
)

// x86Lookup returns slot, size and shift of the general register of a name in
// lower case. The size is 0 if there is none.
func x86Lookup(name string) (slot, size, shift uint8) {
	switch name {
	case "rax":
		return x86AX, 8, 0
	case "eax":
		return x86AX, 4, 0
	case "ax":
		return x86AX, 2, 0
	case "al":
		return x86AX, 1, 0
	case "ah":
		return x86AX, 1, 8
	case "rbx":
		return x86BX, 8, 0
	case "ebx":
		return x86BX, 4, 0
	case "bx":
		return x86BX, 2, 0
	case "bl":
		return x86BX, 1, 0
	case "bh":
		return x86BX, 1, 8
	case "rcx":
		return x86CX, 8, 0
	case "ecx":
		return x86CX, 4, 0
	case "cx":
		return x86CX, 2, 0
	case "cl":
		return x86CX, 1, 0
	case "ch":
		return x86CX, 1, 8
	case "rdx":
		return x86DX, 8, 0
	case "edx":
		return x86DX, 4, 0
	case "dx":
		return x86DX, 2, 0
	case "dl":
		return x86DX, 1, 0
	case "dh":
		return x86DX, 1, 8
	case "rsi":
		return x86SI, 8, 0
	case "esi":
		return x86SI, 4, 0
	case "si":
		return x86SI, 2, 0
	case "sil":
		return x86SI, 1, 0
	case "rdi":
		return x86DI, 8, 0
	case "edi":
		return x86DI, 4, 0
	case "di":
		return x86DI, 2, 0
	case "dil":
		return x86DI, 1, 0
	case "rbp":
		return x86BP, 8, 0
	case "ebp":
		return x86BP, 4, 0
	case "bp":
		return x86BP, 2, 0
	case "bpl":
		return x86BP, 1, 0
	case "rsp":
		return x86SP, 8, 0
	case "esp":
		return x86SP, 4, 0
	case "sp":
		return x86SP, 2, 0
	case "spl":
		return x86SP, 1, 0
	case "rip":
		return x86IP, 8, 0
	case "eip":
		return x86IP, 4, 0
	}
	slot, size = x86Numbered(name)
	return slot, size, 0
}

// x86Numbered is x86Lookup for r8 to r15 and their parts.
func x86Numbered(name string) (slot, size uint8) {
	size = 8
	if last := len(name) - 1; last > 1 {
		switch name[last] {
		case 'd':
			size = 4
		case 'w':
			size = 2
		case 'b', 'l':
			size = 1
		}
		if size != 8 {
			name = name[:last]
		}
	}
	n, ok := numbered(name, "r", 15)
	if !ok || n < 8 {
		return 0, 0
	}
	slots := [8]uint8{x86R8, x86R9, x86R10, x86R11, x86R12, x86R13, x86R14, x86R15}
	return slots[n-8], size
}

// i386Pairs are the registers of i386 in the order of the compilers: a value in
// two registers is in neighbours, with its low half in the first.
var i386Pairs = [...]struct {
	name string
	slot uint8
}{
	{"eax", x86AX}, {"edx", x86DX}, {"ecx", x86CX}, {"ebx", x86BX},
	{"esi", x86SI}, {"edi", x86DI}, {"ebp", x86BP},
}

// i386High returns the register after r.
func (p *parser) i386High(r Register) Register {
	for i, next := range i386Pairs[1:] {
		if i386Pairs[i].slot == r.slot {
			return p.general(next.name, 4, int(next.slot))
		}
	}
	return Register{}
}

// isI386 reports whether 32-bit code can name the register.
func isI386(slot, size uint8) bool {
	switch slot {
	case x86AX, x86BX, x86CX, x86DX, x86IP:
		return size < 8
	case x86SI, x86DI, x86BP, x86SP:
		return size == 4 || size == 2
	}
	return false
}

func isX86General(name string) bool {
	_, size, _ := x86Lookup(name)
	return size != 0
}

// isX86Vector recognises registers of the vector and floating point units.
func isX86Vector(name string) bool {
	for _, prefix := range [...]string{"xmm", "ymm", "zmm", "tmm", "mm", "k"} {
		if _, ok := numbered(name, prefix, 31); ok {
			return true
		}
	}
	return name == "st"
}

// isX86Special recognises the other registers that are not in pt_regs, or whose
// value no probe hands out: segments, control, debug, and APX's r16 to r31.
func isX86Special(name string) bool {
	switch name {
	case "cs", "ds", "es", "fs", "gs", "ss":
		return true
	}
	for _, prefix := range [...]string{"cr", "db", "dr", "bnd", "tr"} {
		if _, ok := numbered(name, prefix, 15); ok {
			return true
		}
	}
	n, ok := numbered(strings.TrimRight(name, "dwb"), "r", 31)
	return ok && n > 15
}
