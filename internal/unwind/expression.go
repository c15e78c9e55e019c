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
		if !t.spend(1) {
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

// operations are the other operations, but for those that name a constant or a
// register in their codes, indexed by their codes.
var operations = [...]func(e *evaluation){
	0x06: func(e *evaluation) { e.dereference(8) },                                // DW_OP_deref
	0x10: func(e *evaluation) { e.push(e.ULEB()) },                                // DW_OP_constu
	0x11: func(e *evaluation) { e.push(uint64(e.SLEB())) },                        // DW_OP_consts
	0x12: func(e *evaluation) { e.push(e.operand(0)) },                            // DW_OP_dup
	0x13: func(e *evaluation) { e.pop() },                                         // DW_OP_drop
	0x14: func(e *evaluation) { e.push(e.operand(1)) },                            // DW_OP_over
	0x15: func(e *evaluation) { e.push(e.operand(int(e.Uint8()))) },               // DW_OP_pick
	0x16: func(e *evaluation) { e.push(e.remove(1)) },                             // DW_OP_swap
	0x17: (*evaluation).rotate,                                                    // DW_OP_rot
	0x19: func(e *evaluation) { v := int64(e.pop()); e.push(uint64(max(v, -v))) }, // DW_OP_abs
	0x1f: func(e *evaluation) { e.push(-e.pop()) },                                // DW_OP_neg
	0x20: func(e *evaluation) { e.push(^e.pop()) },                                // DW_OP_not
	0x23: func(e *evaluation) { e.push(e.pop() + e.ULEB()) },                      // DW_OP_plus_uconst
	0x28: func(e *evaluation) { e.jump(e.Unsigned(2), e.pop()) },                  // DW_OP_bra
	0x2f: func(e *evaluation) { e.jump(e.Unsigned(2), 1) },                        // DW_OP_skip
	0x92: func(e *evaluation) { e.pushRegister(e.ULEB()) },                        // DW_OP_bregx
	0x94: func(e *evaluation) { e.dereference(uint64(e.Uint8())) },                // DW_OP_deref_size
	0x96: func(*evaluation) {},                                                    // DW_OP_nop
}

// execute executes an operation, and reports whether call frame information can
// have it.
func (e *evaluation) execute(op uint8) bool {
	switch {
	case int(op) < len(operations) && operations[op] != nil:
		operations[op](e)
	case op >= 0x08 && op <= 0x0f && op%2 == 0: // DW_OP_const1u, 2u, 4u and 8u
		e.push(e.Unsigned(1 << (op / 2 % 4)))
	case op >= 0x08 && op <= 0x0f: // DW_OP_const1s, 2s, 4s and 8s
		e.push(e.Signed(1 << (op / 2 % 4)))
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
	return true
}

func (e *evaluation) dereference(size uint64) {
	if size != 1 && size != 2 && size != 4 && size != 8 {
		e.Short = true
		return
	}
	value, ok := e.memory.read(e.Order, e.pop(), size)
	if !ok {
		e.err = ErrMemory
	}
	e.push(value)
}

// rotate puts the last of three operands before the other two.
func (e *evaluation) rotate() {
	if top := e.pop(); len(e.operands) < 2 {
		e.err = errMalformed
	} else {
		e.operands = slices.Insert(e.operands, len(e.operands)-2, top)
	}
}

// jump goes on at a distance, unless the condition is 0.
func (e *evaluation) jump(distance, condition uint64) {
	if condition != 0 {
		e.At += int(int16(distance))
	}
	if e.At < 0 || e.At > len(e.Bytes) {
		e.err = errMalformed
	}
}

func (e *evaluation) push(value uint64) { e.operands = append(e.operands, value) }

func (e *evaluation) pop() uint64 { return e.remove(0) }

// remove removes the operand that has some others above it.
func (e *evaluation) remove(above int) uint64 {
	value := e.operand(above)
	if i := len(e.operands) - 1 - above; i >= 0 {
		e.operands = slices.Delete(e.operands, i, i+1)
	}
	return value
}

func (e *evaluation) operand(above int) uint64 {
	i := len(e.operands) - 1 - above
	if i < 0 {
		e.err = errMalformed
		return 0
	}
	return e.operands[i]
}

// pushRegister pushes the value of a register plus the offset that follows.
func (e *evaluation) pushRegister(number uint64) {
	value, ok := e.state.register(number)
	if !ok {
		e.err = fmt.Errorf("%w: register %d", ErrMemory, number)
	}
	e.push(value + uint64(e.SLEB()))
}
