// SPDX-License-Identifier: BSD-2-Clause

package expr

import (
	"fmt"
	"go/token"
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
