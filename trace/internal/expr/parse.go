// SPDX-License-Identifier: BSD-2-Clause

// Package expr reads the expressions of package trace: conditions, which filter
// hits, and terms, which name a value.
//
// The grammar, in the usual order of precedence:
//
//	condition  = and { "||" and }
//	and        = unary { "&&" unary }
//	unary      = "!" unary | "(" condition ")" | comparison
//	comparison = term [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) term ]
//	term       = operand [ "&" integer ]
//	operand    = number | text | name | ( "str" | "calls" ) "(" ( name | key ) [ "," integer ] ")"
//	name       = ( argument | "global" "." symbol ) [ "->" member { ( "->" | "." ) member } ]
//	           | "pid" | "tid" | "uid" | "gid" | "cpu" | "cgroup" | "comm" | "cookie" | "provider" | ...
//
// A number is decimal, hexadecimal (0x), octal (0o) or binary (0b), with an
// optional minus, or a decimal fraction. A text stands in double quotes with
// the escapes of Go. A term alone is a condition that holds where the value is
// not 0.
//
// The package knows nothing of probes, machines or BPF: it turns text into a
// tree and tells what can never be right.
package expr

import (
	"errors"
	"fmt"
	"go/scanner"
	"go/token"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/internal/defs"
)

const (
	// maxLength bounds an expression, in bytes. People write a line.
	maxLength = 4096

	// maxDepth bounds brackets and negations inside each other: recursion.
	maxDepth = 64

	// maxComparisons bounds the comparisons of a condition, for each becomes
	// machine code at each kind of site.
	maxComparisons = 64

	// maxIndex is the last argument that can be named. Known probes have a few
	// dozen arguments at most.
	maxIndex = 255

	// MaxText bounds the bytes of a text to compare with, and maxString those
	// of a key: both are built on the 512 bytes of a BPF program's stack.
	MaxText   = 128
	maxString = 256

	// maxCommand is TASK_COMM_LEN of the kernel without the terminator.
	maxCommand = 15
)

// Names reports whether a name is known: as that of an argument of some probe,
// or else by the expression that it stands for. For "" it returns the names
// that stand for one, separated by ", ". Nil knows none.
type Names func(name string) (meaning string, known bool)

// ParseCondition reads a condition. The error is a *SyntaxError.
func ParseCondition(source string, names Names, containers Containers) (*Node, error) {
	p := newParser(source, names)
	p.containers = containers
	node := p.condition(0)
	p.end("&&, || or the end")
	if p.err != nil {
		return nil, p.err
	}
	return node, nil
}

// ParseTerm reads a single term, which names a value or a key. The error is a
// *SyntaxError.
func ParseTerm(source string, names Names) (Term, error) {
	p := newParser(source, names)
	term := p.term()
	p.end("the end")
	return term, p.err
}

// parser reads an expression. After the first error, the results of its methods
// do not matter.
type parser struct {
	source      string
	names       Names
	containers  Containers
	words       []word
	comparisons int
	err         error // a *SyntaxError
}

func newParser(source string, names Names) *parser {
	p := &parser{source: source, names: names}
	if len(source) > maxLength {
		p.source = source[:32] + "..."
		p.fail(0, fmt.Sprintf("longer than %d bytes", maxLength))
		p.source = ""
	}
	p.cut()
	return p
}

// next returns the next word without taking it.
func (p *parser) next() *word { return &p.words[0] }

func (p *parser) accept(t token.Token) bool {
	found := p.words[0].token == t
	if found {
		p.words = p.words[1:]
	}
	return found
}

func (p *parser) expect(t token.Token) {
	if !p.accept(t) {
		p.unexpected(t.String())
	}
}

// unexpected says what should stand in the place of the next word.
func (p *parser) unexpected(wanted string) {
	if p.next().token == token.EOF {
		p.fail(p.next().offset, "the expression ends where "+wanted+" is expected")
	}
	p.fail(p.next().offset, wanted+" is expected here")
}

// end fails unless the expression ends here.
func (p *parser) end(wanted string) {
	switch w := p.next(); {
	case w.token == token.EOF:
	case w.token == token.IDENT && instead[strings.ToLower(w.text)] != "":
		p.fail(w.offset, instead[strings.ToLower(w.text)])
	case w.token == token.IDENT && wanted == "the end":
		p.fail(w.offset, "one value ends here: several keys are separated by commas")
	default:
		p.unexpected(wanted)
	}
}

func (p *parser) condition(depth int) *Node {
	return p.list(depth, Or, token.LOR,
		func(depth int) *Node { return p.list(depth, And, token.LAND, p.unary) })
}

func (p *parser) list(
	depth int, op Op, separator token.Token, element func(depth int) *Node,
) *Node {
	nodes := []*Node{element(depth)}
	for p.err == nil && p.accept(separator) {
		nodes = append(nodes, element(depth))
	}
	if len(nodes) == 1 {
		return nodes[0]
	}
	return &Node{Op: op, Nodes: nodes}
}

func (p *parser) unary(depth int) *Node {
	switch {
	case depth > maxDepth:
		p.fail(p.next().offset, fmt.Sprintf("more than %d brackets inside each other", maxDepth))
		return nil
	case p.next().text == "not" && !p.isName("not") &&
		(p.words[1].token == token.IDENT || p.words[1].token == token.LPAREN):
		p.fail(p.next().offset, "not is written !, as in !failed")
		return nil
	case p.accept(token.NOT):
		return &Node{Op: Not, Nodes: []*Node{p.unary(depth + 1)}}
	case p.accept(token.LPAREN):
		node := p.condition(depth + 1)
		if p.next().token == token.EOF {
			p.unexpected(")")
		} else if !p.accept(token.RPAREN) {
			p.unexpected("&&, || or )")
		}
		return node
	}
	return p.comparison()
}

var comparisons = map[token.Token]Op{
	token.EQL: Equal, token.NEQ: NotEqual, token.LSS: Less, token.LEQ: LessEqual,
	token.GTR: Greater, token.GEQ: GreaterEqual,
}

func (p *parser) comparison() *Node {
	if p.comparisons++; p.comparisons > maxComparisons {
		p.fail(p.next().offset, fmt.Sprintf("more than %d comparisons", maxComparisons))
	}
	left := p.term()
	node := &Node{Op: NotEqual, Left: left, Right: Term{Source: Number, Offset: left.Offset}}
	if op, ok := comparisons[p.next().token]; ok {
		node.Op = op
		p.accept(p.next().token)
		if w := p.next(); w.token == token.IDENT && p.words[1].token != token.PERIOD && !p.isName(w.text) {
			p.fail(w.offset, p.notQuoted(&left, w.text))
		}
		node.Right = p.term()
	} else if w := p.next(); w.token == token.IDENT && instead[strings.ToLower(w.text)] != "" {
		p.fail(w.offset, instead[strings.ToLower(w.text)])
	} else if left.IsText() {
		p.fail(left.Offset, `a string alone is no condition: compare it, as in comm == "name"`)
	}
	p.check(node)
	if node.Left.Source == Container && p.err == nil {
		return p.ofContainer(node)
	}
	return node
}

// instead has what to write in place of words of other languages.
var instead = map[string]string{
	"contains": `a string cannot be searched: str(query, 6) == "UPDATE" compares its beginning`,
	"like":     `a string cannot be searched: str(query, 6) == "UPDATE" compares its beginning`,
	"in":       `one of several is written with ||: user == "a" || user == "b"`,
	"is":       "a comparison is written == or !=",
	"and":      "and is written &&",
	"or":       "or is written ||",
}

// notQuoted says what may have been meant by a word that is compared, and is no
// name.
func (p *parser) notQuoted(left *Term, word string) string {
	switch {
	case left.Source == Failed:
		return "failed stands alone, or as !failed"
	case left.IsText() || left.Source == Argument:
		return fmt.Sprintf("%s is no name: a string is written in quotes, %q", word, word)
	}
	return p.unknown(word)
}

// isName reports whether a word is what an operand can begin with.
func (p *parser) isName(word string) bool {
	_, ok := words[word]
	_, known := p.known(word)
	return ok || known || p.argument(new(Term), word) ||
		slices.Contains([]string{"str", "calls", "start", "global"}, word)
}

// check refuses comparisons that mean nothing whatever the probe is.
func (p *parser) check(node *Node) {
	left, right := &node.Left, &node.Right
	for _, t := range []*Term{left, right} {
		switch t.Source {
		case Stack, Site, Calls:
			p.fail(t.Offset, "this is a key, and cannot be compared")
		case Self:
			p.fail(t.Offset, "this can be added up, and cannot be compared")
		}
	}
	if left.Source == Container || right.Source == Container {
		p.checkContainer(node)
		return
	}
	for _, t := range [][2]*Term{{left, right}, {right, left}} {
		if t[0].Source == Duration && t[1].Source == Number && !t[1].IsTime && t[1].Number != Uint(0) {
			p.fail(t[1].Offset, "a duration is compared with a time, which has a unit: 10s, 10ms, 10us or 10ns")
		}
	}
	literal, other := left, right
	if right.Source == Text {
		literal, other = right, left
	}
	if left.Start != right.Start && !left.isLiteral() && !right.isLiteral() {
		p.fail(left.Offset,
			"a value of the start can only be compared with a number, a string, or another value of the start")
	} else if left.IsText() || right.IsText() {
		p.checkText(node, literal, other)
	} else {
		return
	}
	if other.Source == Argument {
		other.Source = String
	}
}

func (p *parser) checkText(node *Node, literal, other *Term) {
	switch {
	case other.Source == Text:
		p.fail(node.Left.Offset, "two constant strings are compared")
	case literal.Source != Text:
		p.fail(node.Right.Offset, "a string can only be compared with a string in quotes")
	case !other.IsText() && other.Source != Argument:
		p.fail(literal.Offset, "a number is compared with a string")
	case node.Op != Equal && node.Op != NotEqual:
		p.fail(literal.Offset, "strings can only be compared by == and !=")
	case other.HasMask:
		p.fail(other.Offset, "a string has no bits to mask")
	case len(literal.Text) > MaxText:
		p.fail(literal.Offset, fmt.Sprintf("a string to compare with can have %d bytes", MaxText))
	case other.Source == Command && len(literal.Text) > maxCommand:
		p.fail(literal.Offset,
			fmt.Sprintf("the kernel keeps %d bytes of a command's name", maxCommand))
	case other.Source == String && other.Max > 0 && len(literal.Text) > other.Max:
		p.fail(literal.Offset, fmt.Sprintf("%d bytes of a string cannot be equal to %d",
			other.Max, len(literal.Text)))
	case strings.IndexByte(literal.Text, 0) >= 0:
		p.fail(literal.Offset, "a string to compare with cannot contain a zero byte")
	}
}

func (p *parser) term() Term {
	t := p.operand()
	if p.err != nil || !p.accept(token.AND) {
		return t
	}
	if t.IsText() || t.Number.IsFloat ||
		slices.Contains([]Source{Stack, Site, Container, Self, Calls}, t.Source) {
		p.fail(t.Offset, "this has no bits to mask")
	}
	t.HasMask, t.Mask = true, p.integer()
	if t.Source == Number {
		t.HasMask, t.Number = false, Uint(t.Number.Bits&t.Mask)
	}
	return t
}

func (p *parser) integer() uint64 {
	if p.next().token != token.INT {
		p.unexpected("an integer")
		return 0
	}
	return p.number().Bits
}

func (p *parser) operand() (t Term) {
	t.Offset = p.next().offset
	switch w := *p.next(); {
	case w.isNumber():
		t.Number, t.IsTime = p.number(), w.unit != ""
		return t
	case p.accept(token.STRING):
		t.Source = Text
		var err error
		if t.Text, err = strconv.Unquote(w.text); err != nil {
			p.fail(t.Offset, "the string is not as Go writes it")
		}
		return t
	case p.accept(token.IDENT):
		p.named(&t, w.text)
		return t
	}
	if !p.accept(token.SUB) || !p.next().isNumber() {
		p.unexpected("a number, a string in quotes, argN, pid, tid, comm or another name")
		return t
	}
	switch t.Number = p.number(); {
	case t.Number.IsFloat:
		t.Number.Float = -t.Number.Float
	case t.Number.Bits > -math.MinInt64:
		p.fail(t.Offset, "the number does not fit into 64 bits")
	case t.Number.Bits > 0:
		t.Number = Int(-int64(t.Number.Bits))
	}
	return t
}

// number reads a number without a sign.
func (p *parser) number() Value {
	w := *p.next()
	p.accept(w.token)
	if w.unit != "" {
		d, err := time.ParseDuration(w.text + w.unit)
		if err != nil {
			p.fail(w.offset, w.text+w.unit+" is not a number")
		}
		return Uint(uint64(d))
	}
	if w.token == token.INT {
		integer, err := strconv.ParseUint(w.text, 0, 64)
		if errors.Is(err, strconv.ErrRange) {
			p.fail(w.offset, w.text+" does not fit into 64 bits")
		}
		// With a zero in front the digits are octal in Go, which nobody expects
		// here.
		if err == nil && (len(w.text) == 1 || w.text[0] != '0' ||
			w.text[1] >= 'B' && w.text[1] != '_') {
			return Uint(integer)
		}
	} else if float, err := strconv.ParseFloat(w.text, 64); err == nil &&
		!strings.ContainsAny(w.text, "xX") {
		return Fraction(float)
	}
	p.fail(w.offset, w.text+" is not a number")
	return Value{}
}

func (p *parser) named(t *Term, name string) {
	source, ok := words[name]
	switch {
	case name == "str":
		p.str(t)
	case name == "calls" && p.next().token == token.LPAREN:
		p.str(t)
		t.Source = Calls
	case name == "start" && p.accept(token.PERIOD):
		t.Source, t.Start = Argument, true
		p.argumentOrGlobal(t)
	case name == "global" && p.accept(token.PERIOD):
		t.Source = Argument
		p.global(t)
	case ok:
		t.Source = source
	case !p.argument(t, name):
		meaning, known := p.known(name)
		if !known {
			p.fail(t.Offset, p.unknown(name))
		} else {
			p.mean(t, name, meaning)
		}
	default:
		t.Source = Argument
		p.member(name, &t.Name, &t.Index)
	}
}

// mean reads the expression that a name stands for in place of the name. In it
// only arguments have names.
func (p *parser) mean(t *Term, name, meaning string) {
	read := newParser(meaning, nil)
	if read.err != nil || len(read.words) < 2 {
		p.fail(t.Offset, fmt.Sprintf("%s stands for %s by the definitions, which is not an expression",
			name, meaning))
		return
	}
	after, names := p.words, p.names
	p.words, p.names = read.words, func(name string) (string, bool) {
		meaning, known := names(name)
		return "", known && meaning == ""
	}
	first := p.next().text
	p.words = p.words[1:]
	p.named(t, first)
	if p.err == nil && p.next().token != token.EOF {
		p.unexpected("the end of what " + name + " stands for")
	}
	p.words, p.names = after, names
}

func (p *parser) unknown(name string) string {
	const (
		always = "pid, tid, uid, gid, cpu, cgroup, container, comm, cookie, provider, probe"
		atEnd  = "duration, failed, self"
	)
	named, words := "", always+", "+atEnd+", site, stack"
	if p.names != nil {
		named = "the names of arguments, "
		if keys, _ := p.names(""); keys != "" {
			named += keys + ", "
			words += ", " + keys
		}
	}
	nearest := ""
	if word := defs.NearestWord(name, strings.Split(words, ", ")); word != "" {
		nearest = " (nearest: " + word + ")"
	}
	return name + " is not known" + nearest + "; these are: argN, str(argN), " + named +
		"global.NAME, " + always + "; at the end of a call " + atEnd +
		", start.argN; as keys site, stack, calls(argN)"
}

// str reads what follows the word: (argN [, LENGTH] [, MAX]), where LENGTH is
// an argument and MAX a number. The first can be global.NAME, or start.argN:
// then LENGTH is one of the start, too. It can also be a name that stands for a
// string.
func (p *parser) str(t *Term) {
	t.Source = String
	p.expect(token.LPAREN)
	if p.next().text == "start" {
		p.accept(token.IDENT)
		t.Start = true
		p.expect(token.PERIOD)
	}
	name := p.next().text
	if meaning, known := p.known(name); known && meaning != "" && !t.Start && p.accept(token.IDENT) {
		if p.mean(t, name, meaning); t.Source != String {
			p.fail(t.Offset, name+" is not a string")
		}
	} else {
		p.argumentOrGlobal(t)
	}
	more := p.accept(token.COMMA)
	var length Term
	if lengthName := p.next().text; more && p.next().token == token.IDENT && p.argument(&length, lengthName) {
		p.accept(token.IDENT)
		p.member(lengthName, &length.Name, &length.Index)
		t.HasLength, t.Length, t.LengthName = true, length.Index, length.Name
		more = p.accept(token.COMMA)
	}
	if more {
		at := p.next().offset
		limit := p.integer()
		if limit < 1 || limit > maxString {
			p.fail(at, fmt.Sprintf("the limit can be from 1 to %d bytes", maxString))
		}
		t.Max = int(limit)
	}
	p.expect(token.RPAREN)
}

// argumentOrGlobal reads an argument, or a variable of the program.
func (p *parser) argumentOrGlobal(t *Term) {
	name := p.next().text
	switch {
	case name == "global" && p.words[1].token == token.PERIOD:
		p.words = p.words[2:]
		p.global(t)
	case p.argument(t, name) && p.accept(token.IDENT):
		p.member(name, &t.Name, &t.Index)
	case p.next().token == token.IDENT && p.names != nil && p.isName(name):
		p.fail(p.next().offset, name+" is no argument: it stands alone, without start. and str()")
	case p.next().token == token.IDENT && p.names != nil:
		p.fail(p.next().offset, p.unknown(name))
	default:
		p.unexpected("an argument (arg0, arg1, ...)")
	}
}

// member reads the path that can follow an argument that points to a structure:
// ->connection->fd, ->peer.port.
func (p *parser) member(argument string, name *string, index *int) {
	for path := ""; p.err == nil; *name, *index = argument+path, Unbound {
		by := p.words[0].token
		switch {
		case by == token.SUB && p.words[1].token == token.GTR && p.words[1].offset == p.words[0].offset+1:
			p.words = p.words[2:]
			path += arrow
		case path != "" && p.accept(token.PERIOD):
			path += "."
		case by == token.PERIOD:
			p.fail(p.next().offset, "a member is written "+argument+arrow+p.words[1].text)
			return
		case by == token.SUB && p.words[1].token == token.EOF:
			p.fail(p.next().offset,
				"the expression ends in -: without quotes around it, a shell takes the >")
			return
		default:
			return
		}
		path += p.next().text
		if !p.accept(token.IDENT) {
			p.unexpected("the name of a member")
		}
	}
}

// global reads the symbol of a variable, after "global.", and a path from it.
func (p *parser) global(t *Term) {
	t.Name, t.Index = globalPrefix+p.next().text, Unbound
	if !p.accept(token.IDENT) {
		p.unexpected("the symbol of a variable")
	}
	p.member(t.Name, &t.Name, &t.Index)
}

// argument sets which argument the name is: argN, or the name of one.
func (p *parser) argument(t *Term, name string) bool {
	digits, numbered := strings.CutPrefix(name, "arg")
	if index, err := strconv.ParseUint(digits, 10, 16); numbered && err == nil &&
		index <= maxIndex && (len(digits) == 1 || digits[0] != '0') {
		t.Index = int(index)
		return true
	}
	if meaning, known := p.known(name); !known || meaning != "" {
		return false
	}
	t.Name, t.Index = name, Unbound
	return true
}

func (p *parser) known(name string) (meaning string, known bool) {
	if p.names == nil {
		return "", false
	}
	return p.names(name)
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

// cut cuts an expression into words, the last of which is token.EOF. Its
// numbers and texts are those of Go, so Go's scanner does it.
func (p *parser) cut() {
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
			return
		case tok == token.SEMICOLON && text == "\n":
			continue // the scanner adds it at the end of a line
		case tok == token.ARROW: // in arg0<-1
			p.words = append(p.words, word{token: token.LSS, text: "<", offset: w.offset},
				word{token: token.SUB, text: "-", offset: w.offset + 1})
			continue
		case tok.IsKeyword():
			w.token = token.IDENT // an argument may be named type
		case text == "":
			w.text = tok.String()
		}
		if message := w.refuse(s.ErrorCount > 0); message != "" {
			p.fail(w.offset, message)
		}
		if n := len(p.words); n > 0 && p.words[n-1].isNumber() && p.words[n-1].end() == w.offset &&
			(w.isNumber() || w.token == token.IDENT) {
			number := &p.words[n-1]
			if _, err := time.ParseDuration(number.text + w.text); err != nil || number.unit != "" {
				quotes := ""
				if strings.Count(number.text+w.text, ".") > 1 { // an address
					quotes = " (a string is written in quotes)"
				}
				p.fail(number.offset, number.text+number.unit+w.text+" is not a number"+quotes)
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
	switch isText := w.token == token.STRING; {
	case isText && w.text[0] != '"', w.token == token.CHAR:
		return "a string is written in double quotes"
	case isText && malformed:
		return "the string has no end, an escape that Go does not know, or bytes that are not UTF-8 (write them as \\xff)"
	case w.isNumber() && malformed, w.token == token.IMAG:
		return w.text + " is not a number"
	case w.token == token.ASSIGN:
		return "a comparison is written =="
	case w.token == token.OR:
		return "an alternative is written ||"
	case w.token == token.COMMENT:
		return fmt.Sprintf("unexpected %q", w.text[:2])
	case isText, w.isNumber(), slices.Contains([]token.Token{token.IDENT, token.LPAREN,
		token.RPAREN, token.COMMA, token.PERIOD, token.LAND, token.LOR, token.NOT, token.AND,
		token.SUB, token.EQL, token.NEQ, token.LSS, token.LEQ, token.GTR, token.GEQ}, w.token):
		return ""
	}
	return fmt.Sprintf("unexpected %q", w.text)
}

// fail keeps the first error.
func (p *parser) fail(offset int, message string) {
	if p.err == nil {
		p.err = &SyntaxError{Expression: p.source, Offset: offset, Message: message}
	}
}
