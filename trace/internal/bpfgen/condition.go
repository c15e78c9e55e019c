// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// condition is an expr.Node at a site. Comparisons of values that are known
// there have been decided, and negations have been moved into the comparisons.
//
// A comparison holds only if its values can be read, and so does its negation.
// Because there are no negations above comparisons, a comparison whose values
// cannot be read can be treated as one that does not hold.
type condition struct {
	kind  conditionKind
	parts []condition // of all and either

	// Of a comparison.
	op          expr.Op
	left, right operand
	unordered   bool // it holds if one side is NaN

	number int // of heldAtStart
}

type conditionKind uint8

const (
	never conditionKind = iota
	always
	all
	either
	compareNumbers
	compareText // left with the text of right
	canBeRead   // left, whatever it is
	heldAtStart // by its number
)

// operand is one side of a comparison at a site.
type operand struct {
	term  expr.Term
	class Class
	known bool // the value
	value expr.Value
}

// Class says what the 64 bits of a value are.
type Class uint8

// The classes.
const (
	ClassUnsigned Class = iota
	ClassSigned
	ClassFloat32
	ClassFloat64
)

func classOf(arg *argspec.Arg) Class {
	switch {
	case arg.Float && arg.Size == 4:
		return ClassFloat32
	case arg.Float:
		return ClassFloat64
	case arg.Signed:
		return ClassSigned
	}
	return ClassUnsigned
}

// resolve decides what can be decided of a condition at a site.
func (s *Site) resolve(node *expr.Node, negated bool) (condition, error) {
	switch node.Op {
	case expr.Not:
		return s.resolve(node.Nodes[0], !negated)
	case expr.And, expr.Or:
		return s.resolveList(node, negated)
	}
	if node.OfStart() {
		if !s.ending || !s.starts.holds(node.AtStart) {
			return condition{kind: never}, nil
		}
		return condition{kind: heldAtStart, number: node.AtStart}, nil
	}
	op := node.Op
	if negated {
		op = op.Opposite()
	}
	// NaN is unequal to everything, and neither less nor greater.
	unordered := (node.Op == expr.NotEqual) != negated
	if !node.Left.IsText() && !node.Right.IsText() {
		return s.resolveNumbers(op, node.Left, node.Right, unordered)
	}
	left, right := s.bound(node.Left), s.bound(node.Right)
	if left.Source == expr.Text {
		left, right = right, left
	}
	if left.Source == expr.String && left.Index < len(s.Enums) && s.Enums[left.Index] != nil {
		value, ok := s.Enums[left.Index][right.Text]
		if !ok {
			return condition{}, fmt.Errorf("%s of %s has no value %q; these are: %s",
				cmp.Or(left.Name, fmt.Sprintf("arg%d", left.Index)), s.probe(),
				right.Text, strings.Join(slices.Sorted(maps.Keys(s.Enums[left.Index])), ", "))
		}
		left.Source = expr.Argument
		return s.resolveNumbers(op, left, expr.Term{Number: expr.Int(value)}, unordered)
	}
	return s.resolveText(op, left, right), nil
}

func (s *Site) resolveList(node *expr.Node, negated bool) (condition, error) {
	// In a conjunction one part that never holds decides, in a disjunction one
	// that always does.
	c := condition{kind: all}
	deciding, neutral := never, always
	if (node.Op == expr.Or) != negated {
		c.kind, deciding, neutral = either, always, never
	}
	isDecided := false
	for _, n := range node.Nodes {
		part, err := s.resolve(n, negated)
		if err != nil {
			return c, err
		}
		switch part.kind {
		case deciding:
			isDecided = true
		case neutral:
		case c.kind:
			c.parts = append(c.parts, part.parts...)
		default:
			c.parts = append(c.parts, part)
		}
	}
	switch {
	case isDecided:
		return condition{kind: deciding}, nil
	case len(c.parts) == 0:
		return condition{kind: neutral}, nil
	case len(c.parts) == 1:
		return c.parts[0], nil
	}
	// Parts that need no memory of the traced process are tested first: a read
	// costs as much as fifty comparisons.
	slices.SortStableFunc(c.parts,
		func(a, b condition) int { return cmp.Compare(s.reads(&a), s.reads(&b)) })
	return c, nil
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

// resolveText decides what can be decided of a comparison with a text that is
// written out.
func (s *Site) resolveText(op expr.Op, left, right expr.Term) condition {
	switch left.Source {
	case expr.Provider:
		return decided(op.Holds(strings.Compare(s.Provider, right.Text)))
	case expr.Probe:
		return decided(op.Holds(strings.Compare(s.Name, right.Text)))
	}
	if !s.canRead(left) {
		return decided(false)
	}
	return condition{kind: compareText, op: op, left: operand{term: left},
		right: operand{term: right}}
}

func (s *Site) resolveNumbers(op expr.Op, a, b expr.Term, unordered bool) (condition, error) {
	left, ok := s.operand(a)
	right, ok2 := s.operand(b)
	switch {
	case !ok || !ok2:
		return decided(false), nil
	case left.known && right.known:
		if isNaN(left.value) || isNaN(right.value) {
			return decided(unordered), nil
		}
		return decided(op.Holds(left.value.Compare(right.value))), nil
	case left.known:
		left, right, op = right, left, op.Mirrored()
	}
	c := condition{kind: compareNumbers, op: op, left: left, right: right}
	isFloat := left.class >= ClassFloat32
	switch {
	case !right.known && (isFloat || right.class >= ClassFloat32):
		return c, fmt.Errorf("%s and %s: a float can only be compared with a number",
			s.describe(a), s.describe(b))
	case !right.known:
		return c, nil
	case isNaN(right.value):
		return s.whatever(left, unordered), nil
	case isFloat:
		value := right.value.AsFloat()
		if left.class == ClassFloat32 { // the number gets the precision of the argument
			value = float64(float32(value))
		}
		c.right.value, c.unordered = expr.Fraction(value), unordered
		return c, nil
	case right.value.IsFloat:
		whole := math.Floor(right.value.Float)
		if math.Abs(whole) >= 1<<53 {
			return c, fmt.Errorf("%s is an integer: it cannot be compared with %g",
				s.describe(left.term), right.value.Float)
		}
		if whole != right.value.Float {
			// No integer is equal to it. Integers up to the one below it are
			// less.
			switch op {
			case expr.Equal, expr.NotEqual:
				return s.whatever(left, op == expr.NotEqual), nil
			case expr.Less:
				c.op = expr.LessEqual
			case expr.GreaterEqual:
				c.op = expr.Greater
			}
		}
		c.right.value = expr.Int(int64(whole))
		if whole >= 0 {
			c.right.value = expr.Uint(uint64(whole))
		}
	}
	// A number that the value cannot reach decides the comparison.
	low, high := s.limits(left)
	switch {
	case c.right.value.Compare(low) < 0:
		return s.whatever(left, c.op.Holds(1)), nil
	case c.right.value.Compare(high) > 0:
		return s.whatever(left, c.op.Holds(-1)), nil
	}
	return c, nil
}

// operand returns the facts about a term; ok is false where the value cannot be
// fetched at the site.
func (s *Site) operand(t expr.Term) (o operand, ok bool) {
	t = s.bound(t)
	o.term = t
	switch t.Source {
	case expr.Number:
		o.known, o.value = true, t.Number
	case expr.Cookie:
		o.known, o.value = true, expr.Uint(s.Cookie)
	case expr.Duration, expr.Failed:
		if !s.ending {
			return o, false
		}
		o.known = t.Source == expr.Failed
		if o.known && s.failed {
			o.value = expr.Uint(1)
		}
	case expr.Argument:
		if !s.readable(t.Index) {
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
		o.class = ClassUnsigned
		if t.Source == expr.Argument {
			o.value.Bits = s.Args[t.Index].Constant
		}
		o.value = expr.Uint(o.value.Bits & t.Mask)
	}
	return o, true
}

func constant(arg *argspec.Arg) expr.Value {
	switch classOf(arg) {
	case ClassFloat32:
		return expr.Fraction(float64(math.Float32frombits(uint32(arg.Constant))))
	case ClassFloat64:
		return expr.Fraction(math.Float64frombits(arg.Constant))
	case ClassSigned:
		return expr.Int(int64(arg.Constant))
	}
	return expr.Uint(arg.Constant)
}

func (s *Site) limits(o operand) (low, high expr.Value) {
	switch {
	case o.term.HasMask:
		return expr.Uint(0), expr.Uint(o.term.Mask)
	case o.term.Source == expr.Argument:
		bits := 8 * s.Args[o.term.Index].Size
		if o.class == ClassSigned {
			return expr.Int(-1 << (bits - 1)), expr.Uint(1<<(bits-1) - 1)
		}
		return expr.Uint(0), expr.Uint(math.MaxUint64 >> (64 - bits))
	case slices.Contains([]expr.Source{expr.Duration, expr.Cgroup, expr.Container}, o.term.Source):
		return expr.Uint(0), expr.Uint(math.MaxUint64)
	}
	return expr.Uint(0), expr.Uint(math.MaxUint32)
}

func (s *Site) describe(t expr.Term) string {
	if t.Source == expr.Argument {
		return cmp.Or(t.Name, fmt.Sprintf("arg%d", t.Index)) + " of " + s.probe()
	}
	return "the value"
}

func (s *Site) readable(index int) bool {
	return index < len(s.Args) && argcode.Readable(&s.Args[index], s.machine)
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

func isNaN(v expr.Value) bool { return v.IsFloat && math.IsNaN(v.Float) }

// condition goes to ifFalse unless a condition holds, and returns the arguments
// that are loaded there.
func (b *builder) condition(c *condition, ifFalse argcode.Label) (otherwise map[int]bool) {
	switch c.kind {
	case all:
		for i := range c.parts {
			failed := b.condition(&c.parts[i], ifFalse)
			if i == 0 {
				otherwise = failed
			}
			otherwise = common(otherwise, failed)
		}
		return otherwise
	case either:
		return b.anyOf(c.parts, ifFalse)
	}
	unreadable := b.unreadable(ifFalse)
	otherwise = b.load(unreadable, c.arguments(nil)...)
	switch c.kind {
	case never:
		b.Jump(ifFalse)
	case compareNumbers:
		b.compareNumbers(c, ifFalse)
	case compareText:
		b.Scratch(func() { b.compareText(c, ifFalse, unreadable) })
	case heldAtStart:
		b.Emit(fromStack(r1, b.ending.word), asm.And.Imm(r1, 1<<c.number))
		b.JumpIfImm(asm.JEq, r1, 0, r2, ifFalse)
	}
	return otherwise
}

func (b *builder) anyOf(parts []condition, ifFalse argcode.Label) (otherwise map[int]bool) {
	holds, last := b.Label(), len(parts)-1
	var after map[int]bool // loaded whichever part held
	for i := range parts {
		next := ifFalse
		if i < last {
			next = b.Label()
		}
		otherwise = b.condition(&parts[i], next)
		if i == 0 {
			after = b.loaded
		}
		after = common(after, b.loaded)
		if i < last {
			b.Jump(holds)
			b.Place(next)
			b.loaded = otherwise
		}
	}
	b.Place(holds)
	b.loaded = after
	return otherwise
}

// arguments adds the indices of the arguments that a condition looks at.
func (c *condition) arguments(to []int) []int {
	for i := range c.parts {
		to = c.parts[i].arguments(to)
	}
	for _, o := range []*operand{&c.left, &c.right} {
		if (o.term.Source == expr.Argument || o.term.Source == expr.String) && !o.known {
			to = append(to, o.term.Arguments()...)
		}
	}
	return to
}

// compareNumbers compares loaded values. If only one of two values of the hit
// has a sign, and it is below zero, their bits alone would compare wrongly.
func (b *builder) compareNumbers(c *condition, ifFalse argcode.Label) {
	switch {
	case c.right.known && c.left.class >= ClassFloat32:
		b.compareFloat(c, ifFalse)
		return
	case c.right.known:
		b.operand(r1, &c.left)
		b.JumpIfImm(jumpUnless(c.op, c.left.class), r1, c.right.value.Bits, r2, ifFalse)
		return
	}
	b.operand(r9, &c.left)
	b.operand(r1, &c.right)
	holds, compared := b.Label(), c.left.class
	if c.left.class != c.right.class {
		compared = ClassUnsigned
		below, order := r9, -1
		if c.right.class == ClassSigned {
			below, order = r1, 1
		}
		to := ifFalse
		if c.op.Holds(order) {
			to = holds
		}
		b.JumpIfImm(asm.JSLT, below, 0, r2, to)
	}
	b.JumpIf(jumpUnless(c.op, compared), r9, r1, ifFalse)
	b.Place(holds)
}

// operand emits the value of an operand. An argument in memory must be on the
// stack.
func (b *builder) operand(dst asm.Register, o *operand) {
	switch o.term.Source {
	case expr.Argument:
		b.value(dst, o.term.Index)
	case expr.PID:
		b.numbers()
		b.Emit(asm.RSh.Imm(r0, 32), mov(dst, r0))
	case expr.TID:
		b.numbers()
		b.Emit(asm.Mov.Reg32(dst, r0))
	case expr.UID:
		b.Call(asm.FnGetCurrentUidGid)
		b.Emit(asm.Mov.Reg32(dst, r0))
	case expr.GID:
		b.Call(asm.FnGetCurrentUidGid)
		b.Emit(asm.RSh.Imm(r0, 32), mov(dst, r0))
	case expr.Duration:
		b.Emit(fromStack(dst, b.ending.duration))
	case expr.CPU:
		b.processorID()
		b.Emit(asm.Mov.Reg32(dst, r0))
	case expr.Cgroup, expr.Container:
		b.Call(asm.FnGetCurrentCgroupId)
		b.Emit(mov(dst, r0))
	}
	if o.term.HasMask {
		b.Compute(asm.And, dst, o.term.Mask, r3)
	}
}

// compareFloat compares floats as integers: the bits of positive ones are
// ordered as the numbers are, those of negative ones the other way round.
func (b *builder) compareFloat(c *condition, ifFalse argcode.Label) {
	holds := b.Label()
	b.operand(r1, &c.left)
	infinity := uint64(0x7ff) << 52
	if c.left.class == ClassFloat32 {
		b.Emit(asm.LSh.Imm(r1, 32))
		infinity = 0xff << 55
	}
	unordered := ifFalse
	if c.unordered {
		unordered = holds
	}
	b.Emit(mov(r2, r1), asm.LSh.Imm(r2, 1))
	b.JumpIfImm(asm.JGT, r2, infinity<<1, r3, unordered)
	// So that the two zeros are equal:
	b.If(asm.JEq, r2, 0, r3, func() { b.Emit(set(r1, 0)) })
	b.Emit(mov(r2, r1), asm.ArSh.Imm(r2, 63), asm.RSh.Imm(r2, 1), asm.Xor.Reg(r1, r2))
	b.JumpIfImm(jumpUnless(c.op, ClassSigned), r1, sortable(c.left.class, c.right.value.Float),
		r3, ifFalse)
	b.Place(holds)
}

// sortable returns what compareFloat makes of a number.
func sortable(c Class, value float64) uint64 {
	bits := math.Float64bits(value)
	if c == ClassFloat32 {
		bits = uint64(math.Float32bits(float32(value))) << 32
	}
	if value == 0 {
		bits = 0
	}
	return bits ^ uint64(int64(bits)>>63)>>1
}

// compareText compares what an argument that has been loaded points to, or the
// name of the command, with a text.
func (b *builder) compareText(c *condition, ifFalse, unreadable argcode.Label) {
	literal := []byte(c.right.term.Text)
	differs, holds := ifFalse, b.Label()
	if c.op == expr.NotEqual {
		differs = holds
	}
	switch t := &c.left.term; {
	case t.Source == expr.Command:
		at := b.Alloc(commandSize)
		b.command(r10, at)
		b.compareBytes(at, append(literal, 0), differs)
	case t.HasLength:
		b.compareSized(t, literal, differs, unreadable)
	default:
		b.compareTerminated(t, literal, differs, unreadable)
	}
	if c.op == expr.NotEqual {
		b.Jump(ifFalse)
	}
	b.Place(holds)
}

func (b *builder) compareTerminated(
	t *expr.Term, literal []byte, differs, unreadable argcode.Label,
) {
	// Read one byte past the terminator, so that a longer string compares
	// unequal, unless the string is cut to the length of the text.
	length, size, room := len(literal)+1, len(literal)+2, b.site.Members[t.Index].Room
	tooLong := room > 0 && len(literal) > room
	if t.Max > 0 && t.Max == len(literal) {
		size = length
	} else {
		literal = append(literal, 0)
	}
	at := b.Alloc(size)
	// An address of 32 bits has no sign, whatever the argument's description
	// says.
	b.readText(t.Index, r10, at, size, func(dst asm.Register) { b.raw(dst, t.Index) })
	b.JumpIfImm(asm.JSLT, r0, 0, r1, unreadable)
	if tooLong {
		b.Jump(differs)
		return
	}
	unlike := asm.JNE
	if length == 1 {
		unlike = asm.JGT // see Capture: an empty text may have no length at all
	}
	b.JumpIfImm(unlike, r0, uint64(length), r1, differs)
	b.compareBytes(at, literal, differs)
}

func (b *builder) compareSized(t *expr.Term, literal []byte, differs, unreadable argcode.Label) {
	b.value(r2, t.Length)
	b.JumpIfImm(asm.JSLT, r2, 0, r1, unreadable)
	unlike := asm.JNE
	if t.Max == len(literal) && t.Max > 0 {
		unlike = asm.JLT // the text may be longer than its compared part
	}
	b.JumpIfImm(unlike, r2, uint64(len(literal)), r1, differs)
	if len(literal) == 0 {
		return
	}
	at := b.Alloc(len(literal))
	b.raw(r3, t.Index)
	b.CallOr(unreadable, asm.FnProbeReadUser, onStack(at), len(literal))
	b.compareBytes(at, literal, differs)
}

// compareBytes compares the stack with bytes, eight at a time. The stack there
// must be aligned to 8.
func (b *builder) compareBytes(at int, want []byte, differs argcode.Label) {
	for len(want) > 0 {
		size := 8
		for size > len(want) {
			size /= 2
		}
		part := make([]byte, 8)
		if b.kernel.bigEndian() {
			copy(part[8-size:], want[:size])
		} else {
			copy(part, want[:size])
		}
		b.Emit(loadN(r1, r10, at, argcode.SizeOf(size)))
		b.JumpIfImm(asm.JNE, r1, b.kernel.Order.Uint64(part), r2, differs)
		at += size
		want = want[size:]
	}
}

// command emits code that stores the name of the thread at a place relative to
// a register.
func (b *builder) command(base asm.Register, offset int) {
	b.Call(asm.FnGetCurrentComm, placeAt(base, offset), commandSize)
}

// jumpUnless returns the jump that is taken where a comparison does not hold.
func jumpUnless(op expr.Op, c Class) asm.JumpOp {
	jumps := [...]asm.JumpOp{asm.JNE, asm.JEq, asm.JGE, asm.JGT, asm.JLE, asm.JLT}
	if c == ClassSigned {
		jumps = [...]asm.JumpOp{asm.JNE, asm.JEq, asm.JSGE, asm.JSGT, asm.JSLE, asm.JSLT}
	}
	return jumps[op-expr.Equal]
}
