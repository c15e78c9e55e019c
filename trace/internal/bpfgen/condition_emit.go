// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"maps"
	"math"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/trace/internal/expr"
)

// condition emits what goes to ifFalse unless a condition holds, and returns
// what is loaded there.
func (f *fetcher) condition(c *condition, ifFalse argcode.Label) (otherwise map[int]bool) {
	switch c.kind {
	case never:
		f.Jump(ifFalse)
	case all:
		return f.allOf(c.parts, ifFalse)
	case any:
		return f.anyOf(c.parts, ifFalse)
	case compareNumbers, compareText, canBeRead:
		otherwise = f.load(ifFalse, c.arguments(nil)...)
		switch c.kind {
		case compareNumbers:
			f.compareNumbers(c, ifFalse)
		case compareText:
			f.compareText(c, ifFalse)
		}
		return otherwise
	}
	if c.kind == heldAtStart {
		f.Emit(asm.LoadMem(asm.R1, asm.R10, int16(f.ending.word), asm.DWord),
			asm.And.Imm(asm.R1, 1<<c.number))
		f.JumpIfImm(asm.JEq, asm.R1, 0, asm.R2, ifFalse)
	}
	return maps.Clone(f.loaded)
}

func (f *fetcher) allOf(parts []condition, ifFalse argcode.Label) (otherwise map[int]bool) {
	for i := range parts {
		failed := f.condition(&parts[i], ifFalse)
		if i == 0 {
			otherwise = failed
		}
		otherwise = common(otherwise, failed)
	}
	return otherwise
}

func (f *fetcher) anyOf(parts []condition, ifFalse argcode.Label) (otherwise map[int]bool) {
	holds := f.Label()
	var after map[int]bool // loaded whichever part it was that held
	last := len(parts) - 1
	for i := range parts {
		next := ifFalse
		if i < last {
			next = f.Label()
		}
		otherwise = f.condition(&parts[i], next)
		if i == 0 {
			after = f.loaded
		}
		after = common(after, f.loaded)
		if i < last {
			f.Jump(holds)
			f.Place(next)
			f.loaded = otherwise
		}
	}
	f.Place(holds)
	f.loaded = after
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

// compareNumbers compares what has been loaded.
func (f *fetcher) compareNumbers(c *condition, ifFalse argcode.Label) {
	switch {
	case !c.right.known:
		f.compareOperands(c, ifFalse)
	case c.left.class >= float32bits:
		f.compareFloat(c, ifFalse)
	default:
		f.operand(asm.R1, &c.left)
		f.JumpIfImm(jumpUnless(c.op, c.left.class), asm.R1, c.right.value.Bits, asm.R2, ifFalse)
	}
}

// compareOperands compares two values of the hit, as the numbers they are:
// where only one has a sign and is below zero the bits alone would compare
// wrongly.
func (f *fetcher) compareOperands(c *condition, ifFalse argcode.Label) {
	f.operand(asm.R9, &c.left)
	f.operand(asm.R1, &c.right)
	holds := f.Label()
	compared := c.left.class
	if c.left.class != c.right.class {
		compared = unsigned
		below, order := asm.R9, -1
		if c.right.class == signed {
			below, order = asm.R1, 1
		}
		if c.op.Holds(order) {
			f.JumpIfImm(asm.JSLT, below, 0, asm.R2, holds)
		} else {
			f.JumpIfImm(asm.JSLT, below, 0, asm.R2, ifFalse)
		}
	}
	f.JumpIf(jumpUnless(c.op, compared), asm.R9, asm.R1, ifFalse)
	f.Place(holds)
}

// operand emits the value of an operand. An argument in memory must be on the
// stack.
func (f *fetcher) operand(dst asm.Register, o *operand) {
	switch o.term.Source {
	case expr.Argument:
		f.value(dst, o.term.Index)
	case expr.PID:
		f.numbers()
		f.Emit(asm.RSh.Imm(asm.R0, 32), asm.Mov.Reg(dst, asm.R0))
	case expr.TID:
		f.numbers()
		f.Emit(asm.Mov.Reg32(dst, asm.R0))
	case expr.UID:
		f.Call(asm.FnGetCurrentUidGid)
		f.Emit(asm.Mov.Reg32(dst, asm.R0))
	case expr.GID:
		f.Call(asm.FnGetCurrentUidGid)
		f.Emit(asm.RSh.Imm(asm.R0, 32), asm.Mov.Reg(dst, asm.R0))
	case expr.Duration:
		f.Emit(asm.LoadMem(dst, asm.R10, int16(f.ending.duration), asm.DWord))
	case expr.CPU:
		f.processorID()
		f.Emit(asm.Mov.Reg32(dst, asm.R0))
	case expr.Cgroup, expr.Container:
		f.Call(asm.FnGetCurrentCgroupId)
		f.Emit(asm.Mov.Reg(dst, asm.R0))
	}
	if o.term.HasMask {
		f.And(dst, o.term.Mask, asm.R3)
	}
}

// compareFloat compares floats as integers: the bits of positive ones are
// ordered as the numbers are, those of negative ones the other way round.
func (f *fetcher) compareFloat(c *condition, ifFalse argcode.Label) {
	holds, number := f.Label(), f.Label()
	f.operand(asm.R1, &c.left)
	infinity := uint64(0x7ff) << 52
	if c.left.class == float32bits {
		f.Emit(asm.LSh.Imm(asm.R1, 32))
		infinity = 0xff << 55
	}
	unordered := ifFalse
	if c.unordered {
		unordered = holds
	}
	f.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.LSh.Imm(asm.R2, 1))
	f.JumpIfImm(asm.JGT, asm.R2, infinity<<1, asm.R3, unordered)
	f.JumpIfImm(asm.JNE, asm.R2, 0, asm.R3, number)
	f.Emit(asm.Mov.Imm(asm.R1, 0)) // so that the two zeros are equal
	f.Place(number)
	f.Emit(asm.Mov.Reg(asm.R2, asm.R1), asm.ArSh.Imm(asm.R2, 63), asm.RSh.Imm(asm.R2, 1),
		asm.Xor.Reg(asm.R1, asm.R2))
	f.JumpIfImm(jumpUnless(c.op, signed), asm.R1, sortable(c.left.class, c.right.value.Float),
		asm.R3, ifFalse)
	f.Place(holds)
}

// sortable returns what compareFloat makes of a number.
func sortable(c class, value float64) uint64 {
	bits := math.Float64bits(value)
	if c == float32bits {
		bits = uint64(math.Float32bits(float32(value))) << 32
	}
	if value == 0 {
		bits = 0
	}
	return bits ^ uint64(int64(bits)>>63)>>1
}

// compareText compares what an argument that has been loaded points to, or the
// name of the command, with a text.
func (f *fetcher) compareText(c *condition, ifFalse argcode.Label) {
	literal := []byte(c.right.term.Text)
	differs, holds := ifFalse, f.Label()
	if c.op == expr.NotEqual {
		differs = holds
	}

	if c.left.term.Source == expr.Command {
		f.Scratch(func() {
			at := f.Alloc(commandSize)
			f.command(asm.R10, at)
			f.compareBytes(at, append(literal, 0), differs)
		})
	} else {
		f.Scratch(func() { f.compareString(c, literal, differs, ifFalse) })
	}
	if c.op == expr.NotEqual {
		f.Jump(ifFalse)
	}
	f.Place(holds)
}

func (f *fetcher) compareString(c *condition, literal []byte, differs, unreadable argcode.Label) {
	if c.left.term.HasLength {
		f.compareSized(&c.left.term, literal, differs, unreadable)
		return
	}
	// One byte more than the text and its terminator tells a longer string; a
	// string that is cut to the text's own length need not end there.
	length, size := len(literal)+1, len(literal)+2
	if limit := c.left.term.Max; limit > 0 && limit == len(literal) {
		size = length
	} else {
		literal = append(literal, 0)
	}
	at := f.Alloc(size)
	// An address of 32 bits has no sign, whatever the argument's description
	// says.
	f.readText(asm.R10, at, size, func(dst asm.Register) { f.raw(dst, c.left.term.Index) })
	f.JumpIfImm(asm.JSLT, asm.R0, 0, asm.R1, unreadable)
	unlike := asm.JNE
	if length == 1 {
		unlike = asm.JGT // see Capture: an empty text may have no length at all
	}
	f.JumpIfImm(unlike, asm.R0, uint64(length), asm.R1, differs)
	f.compareBytes(at, literal, differs)
}

// compareSized is compareString for a text whose length is in an argument.
func (f *fetcher) compareSized(t *expr.Term, literal []byte, differs, unreadable argcode.Label) {
	f.value(asm.R2, t.Length)
	f.JumpIfImm(asm.JSLT, asm.R2, 0, asm.R1, unreadable)
	unlike := asm.JNE
	if t.Max == len(literal) && t.Max > 0 {
		unlike = asm.JLT // the text may be longer than what is compared of it
	}
	f.JumpIfImm(unlike, asm.R2, uint64(len(literal)), asm.R1, differs)
	if len(literal) == 0 {
		return
	}
	at := f.Alloc(len(literal))
	f.readMemory(at, unreadable, func() {
		f.Emit(asm.Mov.Imm(asm.R2, int32(len(literal))))
		f.raw(asm.R3, t.Index)
	})
	f.compareBytes(at, literal, differs)
}

// compareBytes compares the stack with bytes, eight at a time. The stack there
// must be aligned to 8.
func (f *fetcher) compareBytes(at int, want []byte, differs argcode.Label) {
	for len(want) > 0 {
		size := 8
		for size > len(want) {
			size /= 2
		}
		var value uint64
		switch size {
		case 8:
			value = f.kernel.Order.Uint64(want)
		case 4:
			value = uint64(f.kernel.Order.Uint32(want))
		case 2:
			value = uint64(f.kernel.Order.Uint16(want))
		default:
			value = uint64(want[0])
		}
		f.Emit(asm.LoadMem(asm.R1, asm.R10, int16(at), argcode.SizeOf(size)))
		f.JumpIfImm(asm.JNE, asm.R1, value, asm.R2, differs)
		at += size
		want = want[size:]
	}
}

// command emits the name of the thread to a place relative to a register.
func (f *fetcher) command(base asm.Register, offset int) {
	f.AddressOf(asm.R1, base, offset)
	f.Emit(asm.Mov.Imm(asm.R2, commandSize))
	f.Call(asm.FnGetCurrentComm)
}

// jumpUnless returns the jump that is taken where a comparison does not hold.
func jumpUnless(op expr.Op, c class) asm.JumpOp {
	jumps := map[expr.Op]asm.JumpOp{
		expr.Equal: asm.JNE, expr.NotEqual: asm.JEq,
		expr.Less: asm.JGE, expr.LessEqual: asm.JGT, expr.Greater: asm.JLE,
		expr.GreaterEqual: asm.JLT,
	}
	if c == signed {
		jumps[expr.Less], jumps[expr.LessEqual] = asm.JSGE, asm.JSGT
		jumps[expr.Greater], jumps[expr.GreaterEqual] = asm.JSLE, asm.JSLT
	}
	return jumps[op]
}
