// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"encoding/binary"
	"strings"
)

// maxListed bounds the arguments of one string that are told apart. Real probes
// have up to 12, hand-written ones somewhat more. Two bytes of a hostile string
// can make an Arg, which is many times larger. The rest of the string becomes
// one more argument, which is Unavailable.
const maxListed = 256

// maxSize is the largest size before an @ that is kept: enough for any
// structure, and no arithmetic on it can overflow.
const maxSize = 1<<16 - 1

// parser decodes one operand after the other. After the first error, the
// results of its methods do not matter.
type parser struct {
	scanner
	err      *unavailableError
	file     File           // nil: only the machine is known
	header   elf.FileHeader // of the file
	machine  *machine
	names    *registers
	location uint64
	all      string // the arguments of the site
	syntax   byte   // see siteSyntax
	arg      *Arg

	// wordSize is the size in bytes of an operand that has none and is not a
	// register. registerSize is that of a general register: a larger value
	// fills two. address32: addresses wrap at 32 bits whatever the operand.
	wordSize, registerSize int
	address32              bool

	// depth counts parentheses and unary operators around the scanner.
	depth int
	// immediates reports whether the operand calculates with several
	// immediates, see isCalculation.
	immediates bool
	// threadLocal reports whether symbols are thread-local variables.
	threadLocal bool
}

// argument decodes a.Raw into the other fields.
func (p *parser) argument(a *Arg) {
	var length int
	a.Size, a.Signed, a.Float, length = parseSize(a.Raw)
	p.scanner, p.err = scanner{text: a.Raw[length:]}, nil
	p.arg = a
	p.depth, p.immediates, p.threadLocal = 0, false, false
	p.parse()
	p.skipBlanks()
	if !p.done() || a.Kind == Unavailable {
		p.malformed()
	}
	if p.err == nil {
		p.fit(length > 0)
	}
	p.finish()
}

func (p *parser) finish() {
	if a := p.arg; p.err != nil {
		if a.Kind != Bytes {
			*a = Arg{Raw: a.Raw, Size: a.Size, Signed: a.Signed, Float: a.Float}
		}
		p.err.raw = a.Raw
		a.Err = p.err
	}
}

// fit converts the operand's value to the argument's size. An argument without
// a size gets that of the operand.
func (p *parser) fit(sized bool) {
	a := p.arg
	if !sized {
		a.Size = p.wordSize
		if a.Kind == InRegister {
			a.Size = int(a.Register.size)
		}
	}
	if isNumber := isNumberSize(a.Size); !isNumber || a.Float && a.Size < 4 {
		if a.Kind == Memory && a.Size > 0 && !isNumber {
			a.Kind = Bytes
		}
		p.fail(errSize, "")
		return
	}
	switch a.Kind {
	case Constant:
		a.Constant = extend(a.Constant, a.Size, a.Signed)
	case InRegister:
		if a.Size > p.registerSize {
			if a.High = p.high(a.Register); a.High.isZero() {
				p.fail(errRegisterPair, a.Register.Name)
			}
			if p.header.ByteOrder == binary.BigEndian {
				a.Register, a.High = a.High, a.Register
			}
		}
		if a.Register.Shift != 0 && a.Size > int(a.Register.size) {
			// Only names of one byte begin at the second byte of a register.
			p.fail(errRegister, a.Register.Name)
		}
	}
}

func isNumberSize(size int) bool { return size == 1 || size == 2 || size == 4 || size == 8 }

// extend cuts a value to size bytes and extends it to 64 bits again.
func extend(value uint64, size int, signed bool) uint64 {
	shift := 64 - 8*size
	if signed {
		return uint64(int64(value<<shift) >> shift)
	}
	return value << shift >> shift
}

func (p *parser) setConstant(value uint64) {
	p.arg.Kind = Constant
	p.arg.Constant = value
}

// setRegister makes the argument the value of a register. The zero Register
// stands for the ones that always read as 0.
func (p *parser) setRegister(r Register) {
	if r.isZero() {
		p.setConstant(0)
		return
	}
	p.arg.Kind = InRegister
	p.arg.Register = r
}

// memory makes the argument a value in memory. A zero base or index is none.
// Without an index the scale does not count.
func (p *parser) memory(base, index Register, scale uint8, displacement uint64) {
	a := p.arg
	a.Kind = Memory
	if index.isZero() {
		scale, a.IndexSize = 1, 0
	} else if base.isZero() && scale == 1 {
		base, index = index, base
	}
	a.Base, a.Index, a.Scale = base, index, scale
	a.Displacement = int64(displacement)
	a.Address32 = p.address32 || base.size == 4 ||
		index.size == 4 && a.IndexSize == 0
	if a.Address32 {
		// Only the low half counts: -4 and 0xfffffffc are the same.
		a.Displacement = int64(int32(displacement))
	}
}

// fail says why the argument is unavailable, unless something said so before.
func (p *parser) fail(reason *reason, detail string) {
	if p.err == nil {
		p.err = &unavailableError{reason: reason, detail: detail}
	}
}

// malformed fails for an operand whose syntax is not the machine's.
func (p *parser) malformed() {
	switch {
	case p.err != nil:
	case p.text == "":
		p.fail(errSyntax, "nothing after the size")
	case p.done():
		p.fail(errSyntax, "unexpected end")
	default:
		p.fail(errSyntax, "unexpected "+quote(p.rest()))
	}
}

// expect is accept for what must come next.
func (p *parser) expect(c byte) {
	if !p.accept(c) {
		p.malformed()
	}
}

// quote returns the start of a text for an error message.
func quote(text string) string {
	const enough = 24
	if len(text) > enough {
		text = text[:enough] + "..."
	}
	return `"` + text + `"`
}

// nextArgument splits off the first argument of a string, without the blanks
// around it. Blanks also stand inside brackets and parentheses, and around
// commas and the operators of a hand-written sum. A size and its @ always begin
// a new argument, so that one with open brackets does not swallow the next.
func nextArgument(text string) (argument, rest string) {
	start := 0
	for start < len(text) && isBlank(text[start]) {
		start++
	}
	depth := 0
	for i := start; i < len(text); i++ {
		switch c := text[i]; {
		case c == '(' || c == '[':
			depth++
		case c == ')' || c == ']':
			depth = max(depth-1, 0)
		case c == '"':
			// A quoted symbol may hold anything. A lone quote is just a byte.
			if end := strings.IndexByte(text[i+1:], '"'); end >= 0 {
				i += end + 1
			}
		case isBlank(c):
			end := i
			for i < len(text) && isBlank(text[i]) {
				i++
			}
			next := text[i:]
			if next == "" || hasSize(next) || depth == 0 && !continues(text[start:end], next) {
				return text[start:end], next
			}
			i--
		}
	}
	return text[start:], ""
}

// hasSize reports whether the text begins with a size and @.
func hasSize(text string) bool {
	_, _, _, length := parseSize(text)
	return length > 0
}

// continues reports whether next, which comes after a blank, is part of the
// operand that ends in before, and not an argument of its own.
func continues(before, next string) bool {
	switch last := before[len(before)-1]; last {
	case ',', '@', '+', '*', '/', '|', '&', '^', '<', '>', '~', '-', '#', '$', '%':
		return true
	}
	switch first := next[0]; first {
	case ',', ')', ']':
		return true
	case '(':
		// "8 (%rbp)" is a displacement and its base: nothing in it is a
		// register or an immediate yet. "%rax (%rbp)" are two arguments.
		operand := before[strings.LastIndexByte(before, '@')+1:]
		return strings.HasPrefix(next, "(%") && !strings.ContainsAny(operand, "%$[")
	case '+', '-', '*', '/', '|', '&', '^', '<', '>':
		// "8 - 4(%rbp)" is one sum, "8 -4(%rbp)" are two arguments. An operator
		// between two arguments belongs to neither.
		operand := strings.TrimLeft(next, string(first))
		after := strings.TrimLeft(operand, blanks)
		if len(after) < len(operand) && after != "" && !hasSize(after) {
			return true
		}
	}
	return intelContinues(before, next)
}

// parseSize parses the prefix "[-]SIZE[f]@" of a text. length is that of the
// prefix in bytes, 0 if there is none. A size larger than maxSize is 0.
func parseSize(text string) (size int, signed, float bool, length int) {
	i := 0
	if len(text) > 0 && text[0] == '-' {
		signed, i = true, 1
	}
	first := i
	for ; i < len(text) && isDigit(text[i]); i++ {
		if size <= maxSize {
			size = size*10 + int(text[i]-'0')
		}
	}
	if i == first || i == len(text) {
		return 0, false, false, 0
	}
	if text[i] == 'f' {
		// The bits of a float are taken as they are: nothing to extend.
		float, signed = true, false
		i++
	}
	if i == len(text) || text[i] != '@' {
		return 0, false, false, 0
	}
	if size > maxSize {
		size = 0
	}
	return size, signed, float, i + 1
}

// scanner walks over the text of one operand. Every method either advances or
// leaves the position where it was, and none looks past the end.
type scanner struct {
	text string
	pos  int
}

// blanks are the bytes that isBlank knows.
const blanks = " \t\n\v\f\r"

// isBlank reports whether a byte separates arguments. Compilers write spaces,
// assembler macros tabs, and a line end does no harm.
func isBlank(c byte) bool { return c == ' ' || c-'\t' <= '\r'-'\t' }

func isDigit(c byte) bool { return c-'0' <= 9 }

func isLetter(c byte) bool { return c|0x20-'a' <= 'z'-'a' }

// isNameStart and isNamePart are GNU as's rule for symbols: bytes of UTF-8
// sequences are letters, $ is one except at the start.
func isNameStart(c byte) bool { return isLetter(c) || c == '_' || c == '.' || c >= 0x80 }

func isNamePart(c byte) bool { return isNameStart(c) || isDigit(c) || c == '$' }

// peek returns the next byte, 0 at the end.
func (s *scanner) peek() byte { return s.peekAt(0) }

// peekAt returns the byte n places on, 0 past the end.
func (s *scanner) peekAt(n int) byte {
	if n < len(s.text)-s.pos {
		return s.text[s.pos+n]
	}
	return 0
}

func (s *scanner) done() bool { return s.pos >= len(s.text) }

func (s *scanner) rest() string { return s.text[s.pos:] }

func (s *scanner) skipBlanks() {
	for s.pos < len(s.text) && isBlank(s.text[s.pos]) {
		s.pos++
	}
}

// accept skips blanks, and then c if it is next.
func (s *scanner) accept(c byte) bool {
	s.skipBlanks()
	if s.peek() != c || s.done() {
		return false
	}
	s.pos++
	return true
}

// word returns the letters and digits that come next, maybe none. Register
// names of all machines are made of them.
func (s *scanner) word() string {
	start := s.pos
	for c := s.peek(); isLetter(c) || isDigit(c); c = s.peek() {
		s.pos++
	}
	return s.text[start:s.pos]
}

// name returns the symbol name that comes next, without its quotes, or "".
func (s *scanner) name() string {
	if s.peek() == '"' {
		end := strings.IndexByte(s.text[s.pos+1:], '"')
		if end < 0 {
			return ""
		}
		name := s.text[s.pos+1 : s.pos+1+end]
		s.pos += end + 2
		return name
	}
	if !isNameStart(s.peek()) {
		return ""
	}
	start := s.pos
	for isNamePart(s.peek()) {
		s.pos++
	}
	return s.text[start:s.pos]
}

// lower returns the word in lower case, unless it is longer than any name here.
func lower(word string) string {
	if len(word) > 16 {
		return word
	}
	return strings.ToLower(word)
}
