// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"fmt"
	"math"
	"strconv"
	"strings"
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

	// MaxText is how many bytes a text to compare with may have, and how many
	// of a string can be a key: both are built on the 512 bytes of a BPF
	// program's stack.
	MaxText = 128

	// maxCommand is how much of a thread's name the kernel keeps (TASK_COMM_LEN
	// without the terminator).
	maxCommand = 15
)

// ParseCondition reads a condition. The error is a *SyntaxError.
func ParseCondition(source string) (*Node, error) {
	p, err := newParser(source)
	if err != nil {
		return nil, err
	}
	node, err := p.condition(0)
	if err != nil {
		return nil, err
	}
	if p.token.kind != end {
		return nil, p.unexpected("&&, || or the end")
	}
	return node, nil
}

// ParseTerm reads a single term, which names a value or a key. The error is a
// *SyntaxError.
func ParseTerm(source string) (Term, error) {
	p, err := newParser(source)
	if err != nil {
		return Term{}, err
	}
	term, err := p.term()
	if err != nil {
		return Term{}, err
	}
	if p.token.kind != end {
		return Term{}, p.unexpected("the end")
	}
	return term, nil
}

type parser struct {
	lexer
	token       token // the next one
	comparisons int
}

func newParser(source string) (*parser, error) {
	p := &parser{lexer: lexer{source: source}}
	if len(source) > maxLength {
		return nil, &SyntaxError{Expression: source[:32] + "...", Message: fmt.Sprintf("longer than %d bytes", maxLength)}
	}
	return p, p.advance()
}

func (p *parser) advance() (err error) {
	p.token, err = p.next()
	return err
}

// accept takes a symbol if it is next.
func (p *parser) accept(s string) (bool, error) {
	if p.token.kind != symbol || p.token.text != s {
		return false, nil
	}
	return true, p.advance()
}

func (p *parser) expect(s string) error {
	found, err := p.accept(s)
	if err == nil && !found {
		err = p.unexpected(s)
	}
	return err
}

func (p *parser) unexpected(wanted string) error {
	if p.token.kind == end {
		return p.fail(p.token.offset, "the expression ends where "+wanted+" is expected")
	}
	return p.fail(p.token.offset, wanted+" is expected here")
}

func (p *parser) condition(depth int) (*Node, error) {
	return p.list(depth, Or, func(depth int) (*Node, error) { return p.list(depth, And, p.unary) })
}

func (p *parser) list(depth int, op Op, element func(depth int) (*Node, error)) (*Node, error) {
	var nodes []*Node
	for {
		node, err := element(depth)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, node)
		more, err := p.accept(op.String())
		if err != nil {
			return nil, err
		}
		if !more {
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
		return nil, p.fail(p.token.offset, fmt.Sprintf("more than %d brackets inside each other", maxDepth))
	}
	if not, err := p.accept("!"); err != nil {
		return nil, err
	} else if not {
		node, err := p.unary(depth + 1)
		if err != nil {
			return nil, err
		}
		return &Node{Op: Not, Nodes: []*Node{node}}, nil
	}
	if open, err := p.accept("("); err != nil {
		return nil, err
	} else if open {
		node, err := p.condition(depth + 1)
		if err != nil {
			return nil, err
		}
		return node, p.expect(")")
	}
	return p.comparison()
}

func (p *parser) comparison() (*Node, error) {
	if p.comparisons++; p.comparisons > maxComparisons {
		return nil, p.fail(p.token.offset, fmt.Sprintf("more than %d comparisons", maxComparisons))
	}
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	for op := Equal; op <= GreaterEqual; op++ {
		found, err := p.accept(op.String())
		if err != nil {
			return nil, err
		}
		if !found {
			continue
		}
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		node := &Node{Op: op, Left: left, Right: right}
		return node, p.check(node)
	}
	node := &Node{Op: NotEqual, Left: left, Right: Term{Source: Number, Offset: left.Offset}}
	if left.IsText() {
		return nil, p.fail(left.Offset, `a text alone is no condition: compare it, as in comm == "name"`)
	}
	return node, p.check(node)
}

// check refuses comparisons that mean nothing whatever the probe is.
func (p *parser) check(node *Node) error {
	left, right := &node.Left, &node.Right
	for _, t := range []*Term{left, right} {
		if t.Source == Stack || t.Source == Latency || t.Source == Site {
			return p.fail(t.Offset, "this can be a key or a value but not be compared")
		}
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
		return p.fail(literal.Offset, fmt.Sprintf("a text to compare with can have %d bytes", MaxText))
	case other.Source == Command && len(literal.Text) > maxCommand:
		return p.fail(literal.Offset, fmt.Sprintf("the kernel keeps %d bytes of a command's name", maxCommand))
	case other.Source == String && other.Max > 0 && len(literal.Text) > other.Max:
		return p.fail(literal.Offset, fmt.Sprintf("%d bytes of a text cannot be equal to %d", other.Max, len(literal.Text)))
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
	if err != nil {
		return t, err
	}
	masked, err := p.accept("&")
	if err != nil || !masked {
		return t, err
	}
	if t.IsText() || t.Source == Stack || t.Source == Site || t.Number.IsFloat {
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
	value := p.token.value
	if p.token.kind != number || value.IsFloat {
		return 0, p.unexpected("an integer")
	}
	return value.Bits, p.advance()
}

func (p *parser) operand() (Term, error) {
	t := Term{Offset: p.token.offset}
	switch p.token.kind {
	case number:
		t.Number = p.token.value
		return t, p.advance()
	case text:
		t.Source, t.Text = Text, p.token.text
		return t, p.advance()
	case word:
		return p.named(t)
	}
	minus, err := p.accept("-")
	if err != nil {
		return t, err
	}
	if !minus || p.token.kind != number {
		return t, p.unexpected("a number, a text in quotes, argN, pid, tid, comm or another name")
	}
	value := p.token.value
	switch {
	case value.IsFloat:
		value.Float = -value.Float
	case value.Bits > -math.MinInt64:
		return t, p.fail(t.Offset, "the number does not fit into 64 bits")
	case value.Bits > 0:
		value = Int(-int64(value.Bits))
	}
	t.Number = value
	return t, p.advance()
}

func (p *parser) named(t Term) (Term, error) {
	name := p.token.text
	if err := p.advance(); err != nil {
		return t, err
	}
	if name == "str" {
		return p.str(t)
	}
	if source, ok := words[name]; ok {
		t.Source = source
		return t, nil
	}
	if index, ok := argument(name); ok {
		t.Source, t.Index = Argument, index
		return t, nil
	}
	return t, p.fail(t.Offset, name+" is not known: argN, str(argN), pid, tid, uid, gid, cpu, comm, cookie, provider and probe are, "+
		"as keys of an aggregation also site and stack")
}

// str reads what follows the word: (argN) or (argN, MAX).
func (p *parser) str(t Term) (Term, error) {
	t.Source = String
	if err := p.expect("("); err != nil {
		return t, err
	}
	index, ok := argument(p.token.text)
	if p.token.kind != word || !ok {
		return t, p.unexpected("an argument (arg0, arg1, ...)")
	}
	t.Index = index
	if err := p.advance(); err != nil {
		return t, err
	}
	comma, err := p.accept(",")
	if err != nil {
		return t, err
	}
	if comma {
		at := p.token.offset
		limit, err := p.integer()
		if err != nil {
			return t, err
		}
		if limit < 1 || limit > MaxText {
			return t, p.fail(at, fmt.Sprintf("the limit can be from 1 to %d bytes", MaxText))
		}
		t.Max = int(limit)
	}
	return t, p.expect(")")
}

// argument returns N for "argN".
func argument(name string) (int, bool) {
	digits, ok := strings.CutPrefix(name, "arg")
	if !ok || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	index, err := strconv.ParseUint(digits, 10, 16)
	return int(index), err == nil && index <= maxIndex
}
