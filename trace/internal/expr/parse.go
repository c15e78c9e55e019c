// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"math"
	"strconv"
	"strings"
	"time"
)

const (
	// maxLength bounds an expression. People write a line; a program that
	// writes one for each of many values should use several sessions.
	maxLength = 4096

	// maxDepth bounds brackets and negations inside each other, which the
	// parser handles by recursion.
	maxDepth = 64

	// maxComparisons bounds the comparisons of a condition, for each becomes
	// machine code at each kind of site.
	maxComparisons = 64

	// maxIndex is the last argument that can be named. No probe known to us has
	// more than a few dozen.
	maxIndex = 255

	// MaxText is how many bytes a text to compare with may have, and maxString
	// how many of a string can be a key: both are built on the 512 bytes of a
	// BPF program's stack.
	MaxText   = 128
	maxString = 256

	// maxCommand is how much of a thread's name the kernel keeps (TASK_COMM_LEN
	// without the terminator).
	maxCommand = 15
)

// Names reports whether some probe has an argument of that name. Nil knows
// none.
type Names func(name string) bool

// ParseCondition reads a condition. The error is a *SyntaxError.
func ParseCondition(source string, names Names, containers Containers) (*Node, error) {
	p, err := newParser(source, names)
	if err != nil {
		return nil, err
	}
	p.containers = containers
	node, err := p.condition(0)
	if err == nil && p.next().token != token.EOF {
		err = p.unexpected("&&, || or the end")
	}
	if err != nil {
		return nil, err
	}
	return node, nil
}

// ParseTerm reads a single term, which names a value or a key. The error is a
// *SyntaxError.
func ParseTerm(source string, names Names) (Term, error) {
	p, err := newParser(source, names)
	if err != nil {
		return Term{}, err
	}
	term, err := p.term()
	if err == nil && p.next().token != token.EOF {
		err = p.unexpected("the end")
	}
	return term, err
}

type parser struct {
	source      string
	names       Names
	containers  Containers
	words       []word
	comparisons int
}

func newParser(source string, names Names) (*parser, error) {
	p := &parser{source: source, names: names}
	if len(source) > maxLength {
		p.source = source[:32] + "..."
		return nil, p.fail(0, fmt.Sprintf("longer than %d bytes", maxLength))
	}
	return p, p.cut()
}

// next returns the next word, which stays the next one.
func (p *parser) next() *word { return &p.words[0] }

// accept takes the next word if it is this one.
func (p *parser) accept(t token.Token) bool {
	found := p.words[0].token == t
	if found {
		p.words = p.words[1:]
	}
	return found
}

func (p *parser) expect(t token.Token) error {
	if !p.accept(t) {
		return p.unexpected(t.String())
	}
	return nil
}

// unexpected says what should stand in the place of the next word.
func (p *parser) unexpected(wanted string) error {
	if p.next().token == token.EOF {
		return p.fail(p.next().offset, "the expression ends where "+wanted+" is expected")
	}
	return p.fail(p.next().offset, wanted+" is expected here")
}

func (p *parser) condition(depth int) (*Node, error) {
	return p.list(depth, Or, token.LOR,
		func(depth int) (*Node, error) { return p.list(depth, And, token.LAND, p.unary) })
}

func (p *parser) list(
	depth int, op Op, separator token.Token, element func(depth int) (*Node, error),
) (*Node, error) {
	var nodes []*Node
	for {
		node, err := element(depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
		if !p.accept(separator) {
			break
		}
	}
	if len(nodes) == 1 {
		return nodes[0], nil
	}
	return &Node{Op: op, Nodes: nodes}, nil
}

func (p *parser) unary(depth int) (*Node, error) {
	if depth > maxDepth {
		return nil, p.fail(p.next().offset, fmt.Sprintf("more than %d brackets inside each other",
			maxDepth))
	}
	switch {
	case p.accept(token.NOT):
		node, err := p.unary(depth + 1)
		if err != nil {
			return nil, err
		}
		return &Node{Op: Not, Nodes: []*Node{node}}, nil
	case p.accept(token.LPAREN):
		node, err := p.condition(depth + 1)
		switch {
		case err != nil || p.accept(token.RPAREN):
			return node, err
		case p.next().token == token.EOF:
			return nil, p.unexpected(")")
		}
		return nil, p.unexpected("&&, || or )")
	}
	return p.comparison()
}

var comparisons = map[token.Token]Op{
	token.EQL: Equal, token.NEQ: NotEqual, token.LSS: Less, token.LEQ: LessEqual,
	token.GTR: Greater, token.GEQ: GreaterEqual,
}

func (p *parser) comparison() (*Node, error) {
	if p.comparisons++; p.comparisons > maxComparisons {
		return nil, p.fail(p.next().offset, fmt.Sprintf("more than %d comparisons", maxComparisons))
	}
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	node := &Node{Op: NotEqual, Left: left, Right: Term{Source: Number, Offset: left.Offset}}
	if op, ok := comparisons[p.next().token]; ok {
		node.Op = op
		p.accept(p.next().token)
		if node.Right, err = p.term(); err != nil {
			return nil, err
		}
	} else if left.IsText() {
		return nil, p.fail(left.Offset,
			`a text alone is no condition: compare it, as in comm == "name"`)
	}
	if err := p.check(node); err != nil {
		return nil, err
	}
	if node.Left.Source == Container {
		return p.ofContainer(node)
	}
	return node, nil
}

// check refuses comparisons that mean nothing whatever the probe is.
func (p *parser) check(node *Node) error {
	left, right := &node.Left, &node.Right
	for _, t := range []*Term{left, right} {
		if t.Source == Stack || t.Source == Site {
			return p.fail(t.Offset, "this is a key, and cannot be compared")
		}
	}
	if left.Source == Container || right.Source == Container {
		return p.checkContainer(node)
	}
	if left.Start != right.Start && !left.isLiteral() && !right.isLiteral() {
		return p.fail(left.Offset,
			"a value of the start can only be compared with a number, a text, or another value of the start")
	}
	switch {
	case !left.IsText() && !right.IsText():
		return nil
	case left.Source == Text && right.Source == Text:
		return p.fail(left.Offset, "two constant texts are compared")
	case left.Source != Text && right.Source != Text:
		return p.fail(right.Offset, "a text can only be compared with a text in quotes")
	}
	literal, other := left, right
	if right.Source == Text {
		literal, other = right, left
	}
	switch {
	case !other.IsText() && other.Source != Argument:
		return p.fail(literal.Offset, "a number is compared with a text")
	case node.Op != Equal && node.Op != NotEqual:
		return p.fail(literal.Offset, "texts can only be compared by == and !=")
	case other.HasMask:
		return p.fail(other.Offset, "a text has no bits to mask")
	case len(literal.Text) > MaxText:
		return p.fail(literal.Offset,
			fmt.Sprintf("a text to compare with can have %d bytes", MaxText))
	case other.Source == Command && len(literal.Text) > maxCommand:
		return p.fail(literal.Offset, fmt.Sprintf("the kernel keeps %d bytes of a command's name",
			maxCommand))
	case other.Source == String && other.Max > 0 && len(literal.Text) > other.Max:
		return p.fail(literal.Offset, fmt.Sprintf("%d bytes of a text cannot be equal to %d",
			other.Max, len(literal.Text)))
	case strings.IndexByte(literal.Text, 0) >= 0:
		return p.fail(literal.Offset, "a text to compare with cannot contain a zero byte")
	}
	if other.Source == Argument {
		other.Source = String
	}
	return nil
}

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
		t.Source, t.Start = Argument, true
		return t, p.argumentOrGlobal(&t)
	case name == "global" && p.accept(token.PERIOD):
		t.Source = Argument
		return t, p.global(&t)
	}
	if source, ok := words[name]; ok {
		t.Source = source
		return t, nil
	}
	if !p.argument(&t, name) {
		return t, p.fail(t.Offset, p.unknown(name))
	}
	t.Source = Argument
	return t, p.member(name, &t.Name, &t.Index)
}

func (p *parser) unknown(name string) string {
	named := ""
	if p.names != nil {
		named = "the names of arguments, "
	}
	return name + " is not known; these are: argN, str(argN), " + named +
		"global.NAME, " +
		"pid, tid, uid, gid, cpu, cgroup, container, comm, cookie, provider, probe; " +
		"at the end of a call duration, failed, start.argN; as keys site, stack"
}

// str reads what follows the word: (argN), (argN, LENGTH), (argN, MAX) or
// (argN, LENGTH, MAX), where LENGTH is an argument and MAX a number. The first
// can be global.NAME, or start.argN: then LENGTH is one of the start, too.
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
	if err := p.argumentOrGlobal(&t); err != nil {
		return t, err
	}
	more := p.accept(token.COMMA)
	var length Term
	if lengthName := p.next().text; more && p.argument(&length, lengthName) {
		p.accept(token.IDENT)
		t.HasLength, t.Length, t.LengthName = true, length.Index, length.Name
		if err := p.member(lengthName, &t.LengthName, &t.Length); err != nil {
			return t, err
		}
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

// argumentOrGlobal reads an argument, or a variable of the program.
func (p *parser) argumentOrGlobal(t *Term) error {
	name := p.next().text
	if name == "global" && p.words[1].token == token.PERIOD {
		p.words = p.words[2:]
		return p.global(t)
	}
	if !p.argument(t, name) || !p.accept(token.IDENT) {
		return p.unexpected("an argument (arg0, arg1, ...)")
	}
	return p.member(name, &t.Name, &t.Index)
}

// member reads what can follow an argument that points to a structure:
// ->connection->fd, ->peer.port.
func (p *parser) member(argument string, name *string, index *int) error {
	for path := ""; ; *name, *index = argument+path, Unbound {
		by := p.words[0].token
		switch {
		case by == token.SUB && p.words[1].token == token.GTR && p.words[1].offset == p.words[0].offset+1:
			p.words = p.words[2:]
			path += arrow
		case path != "" && p.accept(token.PERIOD):
			path += "."
		default:
			switch {
			case by == token.PERIOD:
				return p.fail(p.next().offset, "a member is written "+argument+arrow+p.words[1].text)
			case by == token.SUB && p.words[1].token == token.EOF:
				return p.fail(p.next().offset,
					"the expression ends in -: without quotes around it, a shell takes the >")
			}
			return nil
		}
		path += p.next().text
		if !p.accept(token.IDENT) {
			return p.unexpected("the name of a member")
		}
	}
}

// global reads the symbol of a variable, behind "global.".
func (p *parser) global(t *Term) error {
	t.Name, t.Index = globalPrefix+p.next().text, Unbound
	if !p.accept(token.IDENT) {
		return p.unexpected("the symbol of a variable")
	}
	return nil
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
