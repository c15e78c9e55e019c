// SPDX-License-Identifier: BSD-2-Clause

package argspec

import (
	"debug/elf"
	"strings"
)

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
	if p.target.machine == elf.EM_386 && p.target.file != nil {
		_, err := p.target.file.Symbol(word)
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
			if start = p.pos; !strings.EqualFold(p.skipWord(), "flat") || !p.accept(':') {
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
	case !sum.index.IsZero() || !sum.base.IsZero() && sum.rest.number != 0:
		return p.malformed()
	case !sum.base.IsZero():
		p.register(sum.base)
	default:
		p.constant(sum.rest.number)
	}
	return nil
}

// skipWord returns the word after blanks.
func (p *parser) skipWord() string {
	p.skipBlanks()
	return p.word()
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
	case scale == 0 && sum.base.IsZero():
		sum.base = r
	case sum.index.IsZero():
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
