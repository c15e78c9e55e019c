// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"fmt"
	"slices"
)

const (
	// maxOperations bounds the operations of an expression, which can jump
	// back. Those of compilers and linkers take ten.
	maxOperations = 1000

	// maxOperands bounds the stack of an expression.
	maxOperands = 64
)

// evaluation is the state of evaluating an expression.
type evaluation struct {
	cursor
	state    State // a copy, so that the caller's need not be on the heap
	memory   Memory
	operands []uint64
	err      error
}

// evaluate returns the value of an expression. Its stack begins with the given
// operands.
func (t *Table) evaluate(expression code, s *State, m Memory, operands ...uint64) (uint64, error) {
	// Jumps are relative, and must not leave the expression.
	bytes := t.frames.bytes[expression.start:expression.end]
	e := &evaluation{cursor: t.cursor(bytes, 0), state: *s, memory: m, operands: operands}
	for n := 0; !e.Done(); n++ {
		if !t.unwinder.spend(1) {
			return 0, ErrWork
		}
		at := e.At
		op := e.Uint8()
		known := e.execute(op)
		switch {
		case e.err != nil:
			return 0, e.err
		case !known || e.Short || n == maxOperations || len(e.operands) > maxOperands:
			return 0, fmt.Errorf("%w: operation %#x at %d of an expression", errMalformed, op, at)
		}
	}
	return e.pop(), e.err
}

// twoOperands are the operations that replace the last two operands by one,
// indexed by their codes.
var twoOperands = [...]func(a, b uint64) uint64{
	0x1a: func(a, b uint64) uint64 { return a & b },                       // DW_OP_and
	0x1b: func(a, b uint64) uint64 { return uint64(int64(a) / int64(b)) }, // DW_OP_div
	0x1c: func(a, b uint64) uint64 { return a - b },                       // DW_OP_minus
	0x1d: func(a, b uint64) uint64 { return a % b },                       // DW_OP_mod
	0x1e: func(a, b uint64) uint64 { return a * b },                       // DW_OP_mul
	0x21: func(a, b uint64) uint64 { return a | b },                       // DW_OP_or
	0x22: func(a, b uint64) uint64 { return a + b },                       // DW_OP_plus
	0x24: func(a, b uint64) uint64 { return a << b },                      // DW_OP_shl
	0x25: func(a, b uint64) uint64 { return a >> b },                      // DW_OP_shr
	0x26: func(a, b uint64) uint64 { return uint64(int64(a) >> b) },       // DW_OP_shra
	0x27: func(a, b uint64) uint64 { return a ^ b },                       // DW_OP_xor
	0x29: func(a, b uint64) uint64 { return truth(a == b) },               // DW_OP_eq
	0x2a: func(a, b uint64) uint64 { return truth(int64(a) >= int64(b)) }, // DW_OP_ge
	0x2b: func(a, b uint64) uint64 { return truth(int64(a) > int64(b)) },  // DW_OP_gt
	0x2c: func(a, b uint64) uint64 { return truth(int64(a) <= int64(b)) }, // DW_OP_le
	0x2d: func(a, b uint64) uint64 { return truth(int64(a) < int64(b)) },  // DW_OP_lt
	0x2e: func(a, b uint64) uint64 { return truth(a != b) },               // DW_OP_ne
}

func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

// execute executes an operation, and reports whether call frame information can
// have it.
func (e *evaluation) execute(op uint8) bool {
	last := len(e.operands) - 1
	switch op {
	case 0x06, 0x94: // DW_OP_deref, DW_OP_deref_size
		size := uint64(8)
		if op == 0x94 {
			size = uint64(e.Uint8())
		}
		if size != 1 && size != 2 && size != 4 && size != 8 {
			return false
		}
		value, ok := e.memory.read(e.Order, e.pop(), size)
		if !ok {
			e.err = ErrMemory
		}
		e.push(value)
	case 0x08, 0x0a, 0x0c, 0x0e: // DW_OP_const1u to const8u
		e.push(e.Unsigned(1 << ((op - 0x08) / 2)))
	case 0x09, 0x0b, 0x0d, 0x0f: // DW_OP_const1s to const8s
		e.push(e.Signed(1 << ((op - 0x08) / 2)))
	case 0x10: // DW_OP_constu
		e.push(e.ULEB())
	case 0x11: // DW_OP_consts
		e.push(uint64(e.SLEB()))
	case 0x12: // DW_OP_dup
		e.pick(last)
	case 0x13: // DW_OP_drop
		e.pop()
	case 0x14: // DW_OP_over
		e.pick(last - 1)
	case 0x15: // DW_OP_pick
		e.pick(last - int(e.Uint8()))
	case 0x16: // DW_OP_swap
		e.push(e.remove(last - 1))
	case 0x17: // DW_OP_rot: the first of three becomes the third
		if top := e.pop(); last < 2 {
			e.err = errMalformed
		} else {
			e.operands = slices.Insert(e.operands, last-2, top)
		}
	case 0x19: // DW_OP_abs
		value := int64(e.pop())
		e.push(uint64(max(value, -value)))
	case 0x1f: // DW_OP_neg
		e.push(-e.pop())
	case 0x20: // DW_OP_not
		e.push(^e.pop())
	case 0x23: // DW_OP_plus_uconst
		e.push(e.pop() + e.ULEB())
	case 0x28, 0x2f: // DW_OP_bra, DW_OP_skip
		distance := int(int16(e.Unsigned(2)))
		if op == 0x2f || e.pop() != 0 {
			e.At += distance
		}
		if e.At < 0 || e.At > len(e.Bytes) {
			e.err = errMalformed
		}
	case 0x92: // DW_OP_bregx
		e.pushRegister(e.ULEB())
	case 0x96: // DW_OP_nop
	default:
		switch {
		case op >= 0x30 && op <= 0x4f: // DW_OP_lit0 to lit31
			e.push(uint64(op - 0x30))
		case op >= 0x70 && op <= 0x8f: // DW_OP_breg0 to breg31
			e.pushRegister(uint64(op - 0x70))
		case int(op) < len(twoOperands) && twoOperands[op] != nil:
			b := e.pop()
			a := e.pop()
			if b == 0 && (op == 0x1b || op == 0x1d) {
				e.err = errMalformed // divides by zero
				break
			}
			e.push(twoOperands[op](a, b))
		default:
			return false
		}
	}
	return true
}

func (e *evaluation) push(value uint64) { e.operands = append(e.operands, value) }

func (e *evaluation) pop() uint64 { return e.remove(len(e.operands) - 1) }

func (e *evaluation) remove(i int) uint64 {
	if i < 0 {
		e.err = errMalformed
		return 0
	}
	value := e.operands[i]
	e.operands = slices.Delete(e.operands, i, i+1)
	return value
}

func (e *evaluation) pick(i int) {
	if i < 0 {
		e.err = errMalformed
		return
	}
	e.push(e.operands[i])
}

// pushRegister pushes the value of a register plus the offset that follows.
func (e *evaluation) pushRegister(number uint64) {
	value, ok := e.state.register(number)
	if !ok {
		e.err = fmt.Errorf("%w: register %d", ErrMemory, number)
	}
	e.push(value + uint64(e.SLEB()))
}
