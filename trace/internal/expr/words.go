// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"fmt"
	"go/scanner"
	"go/token"
	"time"
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

// word is a part of an expression: a name, a number, a text, an operator or a
// bracket.
type word struct {
	token  token.Token
	text   string
	offset int
	unit   string // of a number that is a time, as in 5ms
}

// cut cuts an expression into words, the last of which is token.EOF. Go's
// scanner does it, whose numbers and texts are ours.
func (p *parser) cut() error {
	file := token.NewFileSet().AddFile("", 1, len(p.source))
	var s scanner.Scanner
	s.Init(file, []byte(p.source), func(token.Position, string) {}, scanner.ScanComments)
	for {
		position, tok, text := s.Scan()
		w := word{token: tok, text: text, offset: int(position) - 1}
		switch {
		case tok == token.EOF:
			w.offset = len(p.source)
			p.words = append(p.words, w)
			return nil
		case tok == token.SEMICOLON && text == "\n":
			continue // the scanner adds it at the end of a line
		case tok == token.ARROW: // in arg0<-1
			p.words = append(p.words, word{token: token.LSS, text: "<", offset: w.offset},
				word{token: token.SUB, text: "-", offset: w.offset + 1})
			continue
		case tok.IsKeyword():
			w.token = token.IDENT // arguments are called type
		case text == "":
			w.text = tok.String()
		}
		if message := w.refuse(s.ErrorCount > 0); message != "" {
			return p.fail(w.offset, message)
		}
		if n := len(p.words); n > 0 && p.words[n-1].isNumber() && p.words[n-1].end() == w.offset &&
			(w.isNumber() || w.token == token.IDENT) {
			number := &p.words[n-1]
			if _, err := time.ParseDuration(number.text + w.text); err != nil || number.unit != "" {
				return p.fail(number.offset, number.text+number.unit+w.text+" is not a number")
			}
			number.unit = w.text
			continue
		}
		p.words = append(p.words, w)
	}
}

func (w *word) end() int { return w.offset + len(w.text) + len(w.unit) }

func (w *word) isNumber() bool { return w.token == token.INT || w.token == token.FLOAT }

// refuse returns why a word is not part of any expression, "" if it may be. A
// malformed word is one that Go does not have either.
func (w *word) refuse(malformed bool) string {
	switch w.token {
	case token.IDENT, token.LPAREN, token.RPAREN, token.COMMA, token.PERIOD, token.LAND, token.LOR,
		token.NOT, token.AND, token.SUB,
		token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ:
		return ""
	case token.INT, token.FLOAT:
		if malformed {
			return w.text + " is not a number"
		}
		return ""
	case token.STRING:
		switch {
		case w.text[0] != '"':
			return "a text is written in double quotes"
		case malformed:
			return "the text has no end, an escape that Go does not know, or bytes that are not UTF-8 (write them as \\xff)"
		}
		return ""
	case token.CHAR:
		return "a text is written in double quotes"
	case token.IMAG:
		return w.text + " is not a number"
	case token.ASSIGN:
		return "a comparison is written =="
	case token.OR:
		return "an alternative is written ||"
	case token.COMMENT:
		return fmt.Sprintf("unexpected %q", w.text[:2])
	}
	return fmt.Sprintf("unexpected %q", w.text)
}

func (p *parser) fail(offset int, message string) error {
	return &SyntaxError{Expression: p.source, Offset: offset, Message: message}
}
