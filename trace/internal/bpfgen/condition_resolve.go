// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/cut"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// condition is what is left of an expr.Node at a site. Comparisons of values
// that are known there have been decided, and negations have been moved into
// the comparisons.
//
// A comparison holds only if its values can be read, and so does its negation.
// Because there are no negations above comparisons, a comparison whose values
// cannot be read can be treated as one that does not hold.
type condition struct {
	kind  conditionKind
	parts []condition // of all and any

	// Of a comparison.
	op    expr.Op
	left  operand
	right operand

	number int // of heldAtStart

	// unordered reports whether it holds where one of the two is a float that
	// is not a number.
	unordered bool
}

type conditionKind uint8

const (
	never conditionKind = iota
	always
	all
	any
	compareNumbers
	compareText // left with the text of right
	canBeRead   // left, whatever it is
	heldAtStart // by its number
)

// operand is one side of a comparison at a site.
type operand struct {
	term  expr.Term
	class class
	known bool       // the value is in number
	value expr.Value // for a float in the precision of the argument it is compared with
}

// class is how the 64 bits of a value are to be understood.
type class uint8

const (
	unsigned class = iota
	signed
	float32bits
	float64bits
)

func classOf(arg *argspec.Arg) class {
	switch {
	case arg.Float && arg.Size == 4:
		return float32bits
	case arg.Float:
		return float64bits
	case arg.Signed:
		return signed
	default:
		return unsigned
	}
}

// resolve decides what can be decided of a condition at a site.
func (s *Site) resolve(kernel Kernel, node *expr.Node, negated bool) (condition, error) {
	switch node.Op {
	case expr.Not:
		return s.resolve(kernel, node.Nodes[0], !negated)
	case expr.And, expr.Or:
		return s.resolveList(kernel, node, negated)
	}
	if node.OfStart() {
		if !s.ending {
			return condition{kind: never}, nil
		}
		return condition{kind: heldAtStart, number: node.AtStart}, nil
	}
	op := node.Op
	if negated {
		op = op.Opposite()
	}
	if node.Left.IsText() || node.Right.IsText() {
		return s.resolveText(kernel, op, node.Left, node.Right), nil
	}
	// What is not a number is unequal to everything, and neither less nor
	// greater.
	unordered := (node.Op == expr.NotEqual) != negated
	return s.resolveNumbers(kernel, op, node.Left, node.Right, unordered)
}

func (s *Site) resolveList(kernel Kernel, node *expr.Node, negated bool) (condition, error) {
	// In a conjunction one part that never holds decides, in a disjunction one
	// that always does.
	c := condition{kind: all}
	deciding, neutral := never, always
	if (node.Op == expr.Or) != negated {
		c.kind, deciding, neutral = any, always, never
	}
	decided := false
	for _, n := range node.Nodes {
		part, err := s.resolve(kernel, n, negated)
		if err != nil {
			return c, err
		}
		switch part.kind {
		case deciding:
			decided = true
		case neutral:
		case c.kind:
			c.parts = append(c.parts, part.parts...)
		default:
			c.parts = append(c.parts, part)
		}
	}
	switch {
	case decided:
		return condition{kind: deciding}, nil
	case len(c.parts) == 0:
		return condition{kind: neutral}, nil
	case len(c.parts) == 1:
		return c.parts[0], nil
	default:
		// What needs no memory of the traced process is asked first: a read
		// costs as much as fifty comparisons.
		slices.SortStableFunc(c.parts,
			func(a, b condition) int { return cmp.Compare(s.reads(&a), s.reads(&b)) })
		return c, nil
	}
}

// reads returns how many values a condition may have to read from the memory of
// the traced process.
func (s *Site) reads(c *condition) (n int) {
	for i := range c.parts {
		n += s.reads(&c.parts[i])
	}
	for _, o := range []operand{c.left, c.right} {
		switch {
		case o.term.Source == expr.String:
			n += 2
		case o.term.Source == expr.Argument && s.Args[o.term.Index].Kind == argspec.Memory:
			n++
		}
	}
	return n
}

func (s *Site) resolveText(kernel Kernel, op expr.Op, left, right expr.Term) condition {
	if left.Source == expr.Text {
		left, right = right, left
	}
	literal := right.Text
	switch left.Source {
	case expr.Provider:
		return decided(op.Holds(equalText(s.Provider, literal)))
	case expr.Probe:
		return decided(op.Holds(equalText(s.Name, literal)))
	case expr.String:
		for _, index := range left.Arguments() {
			if !s.readable(kernel, index) {
				return condition{kind: never}
			}
		}
	}
	return condition{kind: compareText, op: op, left: operand{term: left},
		right: operand{term: right}}
}

func (s *Site) resolveNumbers(
	kernel Kernel, op expr.Op, a, b expr.Term, unordered bool,
) (condition, error) {
	left, ok := s.operand(kernel, a)
	right, ok2 := s.operand(kernel, b)
	switch {
	case !ok || !ok2:
		return condition{kind: never}, nil
	case left.known && right.known:
		if isNaN(left.value) || isNaN(right.value) {
			return decided(unordered), nil
		}
		return decided(op.Holds(left.value.Compare(right.value))), nil
	case left.known:
		left, right, op = right, left, op.Mirrored()
	}
	if !right.known {
		if left.class >= float32bits || right.class >= float32bits {
			return condition{}, fmt.Errorf("%s and %s: a float can only be compared with a number",
				s.describe(a), s.describe(b))
		}
		return condition{kind: compareNumbers, op: op, left: left, right: right}, nil
	}
	if isNaN(right.value) {
		return s.whatever(left, unordered), nil
	}
	if left.class >= float32bits {
		return compareFloat(op, left, right, unordered), nil
	}
	return s.compareInteger(op, left, right)
}

// operand returns what is known of a term; ok is false where the value cannot
// be fetched at the site.
func (s *Site) operand(kernel Kernel, t expr.Term) (o operand, ok bool) {
	o.term = t
	switch t.Source {
	case expr.Number:
		o.known, o.value = true, t.Number
	case expr.Cookie:
		o.known, o.value = true, expr.Uint(s.Cookie)
	case expr.Duration:
		if !s.ending {
			return o, false
		}
	case expr.Argument:
		if !s.readable(kernel, t.Index) {
			return o, false
		}
		arg := &s.Args[t.Index]
		o.class = classOf(arg)
		if arg.Kind == argspec.Constant {
			o.known, o.value = true, constant(arg)
		}
	}
	if t.HasMask {
		// Bits have no sign, and those of a float are its bits.
		o.class = unsigned
		if t.Source == expr.Argument {
			o.value.Bits = s.Args[t.Index].Constant
		}
		o.value = expr.Uint(o.value.Bits & t.Mask)
	}
	return o, true
}

func constant(arg *argspec.Arg) expr.Value {
	switch classOf(arg) {
	case float32bits:
		return expr.Fraction(float64(math.Float32frombits(uint32(arg.Constant))))
	case float64bits:
		return expr.Fraction(math.Float64frombits(arg.Constant))
	case signed:
		return expr.Int(int64(arg.Constant))
	default:
		return expr.Uint(arg.Constant)
	}
}

// compareInteger decides comparisons with numbers that the value cannot reach.
func (s *Site) compareInteger(op expr.Op, left, right operand) (condition, error) {
	if right.value.IsFloat {
		whole := math.Floor(right.value.Float)
		if math.Abs(whole) >= 1<<53 {
			return condition{}, fmt.Errorf("%s is an integer: it cannot be compared with %g",
				s.describe(left.term), right.value.Float)
		}
		if whole != right.value.Float {
			// No integer is equal to it: what is not above the integer below it
			// is less.
			switch op {
			case expr.Equal, expr.NotEqual:
				return s.whatever(left, op == expr.NotEqual), nil
			case expr.Less:
				op = expr.LessEqual
			case expr.GreaterEqual:
				op = expr.Greater
			}
		}
		right.value = expr.Int(int64(whole))
		if whole >= 0 {
			right.value = expr.Uint(uint64(whole))
		}
	}

	low, high := s.limits(left)
	switch {
	case right.value.Compare(low) < 0:
		return s.whatever(left, op == expr.NotEqual || op == expr.Greater ||
			op == expr.GreaterEqual), nil
	case right.value.Compare(high) > 0:
		return s.whatever(left, op == expr.NotEqual || op == expr.Less || op == expr.LessEqual), nil
	default:
		return condition{kind: compareNumbers, op: op, left: left, right: right}, nil
	}
}

// limits returns the least and the greatest value that an operand can have.
func (s *Site) limits(o operand) (low, high expr.Value) {
	switch {
	case o.term.HasMask:
		return expr.Uint(0), expr.Uint(o.term.Mask)
	case o.term.Source == expr.Duration:
		return expr.Uint(0), expr.Uint(math.MaxUint64)
	case o.term.Source == expr.Argument:
		bits := 8 * s.Args[o.term.Index].Size
		if o.class == signed {
			return expr.Int(-1 << (bits - 1)), expr.Uint(1<<(bits-1) - 1)
		}
		return expr.Uint(0), expr.Uint(math.MaxUint64 >> (64 - bits))
	case o.term.Source == expr.Cgroup, o.term.Source == expr.Container:
		return expr.Uint(0), expr.Uint(math.MaxUint64)
	default:
		return expr.Uint(0), expr.Uint(math.MaxUint32)
	}
}

// compareFloat rounds the number to the precision of the argument.
func compareFloat(op expr.Op, left, right operand, unordered bool) condition {
	value := right.value.AsFloat()
	if left.class == float32bits {
		value = float64(float32(value))
	}
	right.value = expr.Fraction(value)
	return condition{kind: compareNumbers, op: op, left: left, right: right, unordered: unordered}
}

func (s *Site) describe(t expr.Term) string {
	if t.Source == expr.Argument {
		return fmt.Sprintf("arg%d of %s:%s", t.Index, cut.Name(s.Provider), cut.Name(s.Name))
	}
	return "the value"
}

func (s *Site) readable(kernel Kernel, index int) bool {
	return index < len(s.Args) && s.Args[index].ReadableOn(kernel.Machine)
}

// whatever decides a comparison whose outcome does not depend on the value. It
// still holds only if that can be read.
func (s *Site) whatever(o operand, holds bool) condition {
	if holds && o.term.Source == expr.Argument && s.Args[o.term.Index].Kind == argspec.Memory {
		return condition{kind: canBeRead, left: o}
	}
	return decided(holds)
}

func decided(holds bool) condition {
	if holds {
		return condition{kind: always}
	}
	return condition{kind: never}
}

func equalText(a, b string) int {
	if a == b {
		return 0
	}
	return 1
}

func isNaN(v expr.Value) bool { return v.IsFloat && math.IsNaN(v.Float) }
