// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A SyntaxError says where and why an expression is wrong.
type SyntaxError struct {
	Expression string
	Offset     int // in bytes, from 0
	Message    string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("expression %q, at column %d: %s", e.Expression, e.Offset+1, e.Message)
}

// kind is what a token is.
type kind uint8

const (
	end kind = iota
	word
	number
	text
	symbol // an operator or a bracket
)

type token struct {
	kind   kind
	text   string // of a text the contents
	value  Value  // of a number
	offset int
}

// lexer cuts an expression into tokens. Each call of next either advances or is
// at the end.
type lexer struct {
	source string
	at     int
}

// symbols are tried in this order, so that the longer ones come first.
var symbols = []string{"&&", "||", "==", "!=", "<=", ">=", "<", ">", "!", "&", "(", ")", ",", "-"}

func (l *lexer) next() (token, error) {
	for l.at < len(l.source) && strings.IndexByte(" \t\r\n", l.source[l.at]) >= 0 {
		l.at++
	}
	t := token{offset: l.at}
	if l.at == len(l.source) {
		return t, nil
	}
	c := l.source[l.at]
	switch {
	case c == '"':
		return l.text(t)
	case isDigit(c):
		return l.number(t)
	case isLetter(c):
		t.kind, t.text = word, l.while(func(c byte) bool { return isLetter(c) || isDigit(c) })
		return t, nil
	}
	for _, s := range symbols {
		if strings.HasPrefix(l.source[l.at:], s) {
			t.kind, t.text = symbol, s
			l.at += len(s)
			return t, nil
		}
	}
	if c == '=' {
		return t, l.fail(l.at, "a comparison is written ==")
	}
	if c == '|' {
		return t, l.fail(l.at, "an alternative is written ||")
	}
	r, _ := utf8.DecodeRuneInString(l.source[l.at:])
	return t, l.fail(l.at, fmt.Sprintf("unexpected %q", r))
}

func (l *lexer) text(t token) (token, error) {
	prefix, err := strconv.QuotedPrefix(l.source[l.at:])
	if err != nil {
		return t, l.fail(l.at, "the text has no end, or an escape that Go does not know")
	}
	contents, err := strconv.Unquote(prefix)
	if err != nil {
		return t, l.fail(l.at, "the text has an escape that Go does not know")
	}
	l.at += len(prefix)
	t.kind, t.text = text, contents
	return t, nil
}

func (l *lexer) number(t token) (token, error) {
	digits := l.while(func(c byte) bool { return isDigit(c) || isLetter(c) || c == '.' })
	// The sign of an exponent, as in 1e-3.
	if n := len(digits); !strings.HasPrefix(digits, "0x") && (digits[n-1] == 'e' || digits[n-1] == 'E') &&
		l.at < len(l.source) && (l.source[l.at] == '-' || l.source[l.at] == '+') {
		l.at++
		digits += l.source[l.at-1:l.at] + l.while(isDigit)
	}
	t.kind = number
	integer, err := strconv.ParseUint(digits, 0, 64)
	if err == nil && !strings.HasPrefix(digits, "0_") && (len(digits) == 1 || digits[0] != '0' || !isDigit(digits[1])) {
		t.value = Uint(integer)
		return t, nil
	}
	if errors.Is(err, strconv.ErrRange) {
		return t, l.fail(t.offset, digits+" does not fit into 64 bits")
	}
	if strings.ContainsAny(digits, ".eE") && !strings.HasPrefix(digits, "0x") {
		if float, err := strconv.ParseFloat(digits, 64); err == nil {
			t.value = Fraction(float)
			return t, nil
		}
	}
	return t, l.fail(t.offset, digits+" is not a number")
}

func (l *lexer) while(accept func(byte) bool) string {
	start := l.at
	for l.at < len(l.source) && accept(l.source[l.at]) {
		l.at++
	}
	return l.source[start:l.at]
}

func (l *lexer) fail(offset int, message string) error {
	return &SyntaxError{Expression: l.source, Offset: offset, Message: message}
}

func isDigit(c byte) bool { return c-'0' <= 9 }

func isLetter(c byte) bool { return c|0x20-'a' <= 'z'-'a' || c == '_' }
