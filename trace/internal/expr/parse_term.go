// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"errors"
	"fmt"
	"go/token"
	"math"
	"strconv"
	"strings"
	"time"
)

func (p *parser) term() (Term, error) {
	t, err := p.operand()
	if err != nil || !p.accept(token.AND) {
		return t, err
	}
	if t.IsText() || t.Source == Stack || t.Source == Site || t.Source == Container ||
		t.Number.IsFloat {
		return t, p.fail(t.Offset, "this has no bits to mask")
	}
	mask, err := p.integer()
	t.HasMask, t.Mask = true, mask
	if t.Source == Number {
		t.HasMask, t.Number = false, Uint(t.Number.Bits&mask)
	}
	return t, err
}

func (p *parser) integer() (uint64, error) {
	if p.next().token != token.INT {
		return 0, p.unexpected("an integer")
	}
	v, err := p.number()
	return v.Bits, err
}

func (p *parser) operand() (Term, error) {
	t := Term{Offset: p.next().offset}
	var err error
	switch w := *p.next(); {
	case w.isNumber():
		t.Number, err = p.number()
		return t, err
	case p.accept(token.STRING):
		t.Source = Text
		if t.Text, err = strconv.Unquote(w.text); err != nil {
			err = p.fail(t.Offset, "the text is not as Go writes it")
		}
		return t, err
	case p.accept(token.IDENT):
		return p.named(t, w.text)
	}
	if !p.accept(token.SUB) || !p.next().isNumber() {
		return t, p.unexpected("a number, a text in quotes, argN, pid, tid, comm or another name")
	}
	value, err := p.number()
	switch {
	case err != nil:
	case value.IsFloat:
		value.Float = -value.Float
	case value.Bits > -math.MinInt64:
		err = p.fail(t.Offset, "the number does not fit into 64 bits")
	case value.Bits > 0:
		value = Int(-int64(value.Bits))
	}
	t.Number = value
	return t, err
}

// number reads a number without a sign.
func (p *parser) number() (Value, error) {
	w := *p.next()
	p.accept(w.token)
	if w.unit != "" {
		d, err := time.ParseDuration(w.text + w.unit)
		if err != nil {
			err = p.fail(w.offset, w.text+w.unit+" is not a number")
		}
		return Uint(uint64(d)), err
	}
	if w.token == token.INT {
		integer, err := strconv.ParseUint(w.text, 0, 64)
		if errors.Is(err, strconv.ErrRange) {
			return Value{}, p.fail(w.offset, w.text+" does not fit into 64 bits")
		}
		// With a zero in front the digits are octal in Go, which nobody expects
		// here.
		if err == nil && (len(w.text) == 1 || w.text[0] != '0' ||
			w.text[1] >= 'B' && w.text[1] != '_') {
			return Uint(integer), nil
		}
	} else if float, err := strconv.ParseFloat(w.text, 64); err == nil &&
		!strings.ContainsAny(w.text, "xX") {
		return Fraction(float), nil
	}
	return Value{}, p.fail(w.offset, w.text+" is not a number")
}

func (p *parser) named(t Term, name string) (Term, error) {
	switch {
	case name == "str":
		return p.str(t)
	case name == "start" && p.accept(token.PERIOD):
		t.Start = true
		name = p.next().text
		if !p.argument(&t, name) || !p.accept(token.IDENT) {
			return t, p.unexpected("an argument (arg0, arg1, ...)")
		}
	}
	if source, ok := words[name]; ok {
		t.Source = source
		return t, nil
	}
	if !p.argument(&t, name) {
		return t, p.fail(t.Offset, p.unknown(name))
	}
	t.Source = Argument
	return t, nil
}

func (p *parser) unknown(name string) string {
	named := ""
	if p.names != nil {
		named = "the names of arguments, "
	}
	return name + " is not known; these are: argN, str(argN), " + named +
		"pid, tid, uid, gid, cpu, cgroup, container, comm, cookie, provider, probe; " +
		"at the end of a call duration, start.argN; as keys site, stack"
}

// str reads what follows the word: (argN), (argN, LENGTH), (argN, MAX) or
// (argN, LENGTH, MAX), where LENGTH is an argument and MAX a number.
// The first can be start.argN: then LENGTH is one of the start, too.
func (p *parser) str(t Term) (Term, error) {
	t.Source = String
	if err := p.expect(token.LPAREN); err != nil {
		return t, err
	}
	if p.next().text == "start" {
		p.accept(token.IDENT)
		t.Start = true
		if err := p.expect(token.PERIOD); err != nil {
			return t, err
		}
	}
	if !p.argument(&t, p.next().text) || !p.accept(token.IDENT) {
		return t, p.unexpected("an argument (arg0, arg1, ...)")
	}
	more := p.accept(token.COMMA)
	var length Term
	if more && p.argument(&length, p.next().text) {
		p.accept(token.IDENT)
		t.HasLength, t.Length, t.LengthName = true, length.Index, length.Name
		more = p.accept(token.COMMA)
	}
	if more {
		at := p.next().offset
		limit, err := p.integer()
		if err != nil {
			return t, err
		}
		if limit < 1 || limit > maxString {
			return t, p.fail(at, fmt.Sprintf("the limit can be from 1 to %d bytes", maxString))
		}
		t.Max = int(limit)
	}
	return t, p.expect(token.RPAREN)
}

// argument sets which argument the name is: argN, or the name of one.
func (p *parser) argument(t *Term, name string) bool {
	digits, numbered := strings.CutPrefix(name, "arg")
	if index, err := strconv.ParseUint(digits, 10, 16); numbered && err == nil &&
		index <= maxIndex &&
		(len(digits) == 1 || digits[0] != '0') {
		t.Index = int(index)
		return true
	}
	if p.names == nil || !p.names(name) {
		return false
	}
	t.Name, t.Index = name, Unbound
	return true
}
