// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "fmt"

const (
	// maxOperations bounds the steps of an expression, which can jump back.
	// Those of compilers and linkers take ten.
	maxOperations = 1000

	// maxOperands bounds the stack of an expression.
	maxOperands = 64
)

// The operations of expressions (DW_OP_*) that call frame information can have.
const (
	exprDereference = 0x06
	// And its seven successors: unsigned and signed, of 1, 2, 4 and 8 bytes.
	exprConstant1       = 0x08
	exprConstant8Signed = 0x0f
	exprConstantULEB    = 0x10
	exprConstantSLEB    = 0x11
	exprDuplicate       = 0x12
	exprDrop            = 0x13
	exprOver            = 0x14
	exprPick            = 0x15
	exprSwap            = 0x16
	exprRotate          = 0x17
	exprAbsolute        = 0x19
	exprAnd             = 0x1a
	exprDivide          = 0x1b
	exprMinus           = 0x1c
	exprModulo          = 0x1d
	exprMultiply        = 0x1e
	exprNegate          = 0x1f
	exprNot             = 0x20
	exprOr              = 0x21
	exprPlus            = 0x22
	exprPlusConstant    = 0x23
	exprShiftLeft       = 0x24
	exprShiftRight      = 0x25
	exprShiftSigned     = 0x26
	exprXor             = 0x27
	exprBranch          = 0x28
	exprEqual           = 0x29
	exprGreaterEqual    = 0x2a
	exprGreater         = 0x2b
	exprLessEqual       = 0x2c
	exprLess            = 0x2d
	exprNotEqual        = 0x2e
	exprSkip            = 0x2f
	exprLiteral         = 0x30 // 0 to 31
	exprLiteralLast     = 0x4f
	exprRegister        = 0x70 // 0 to 31, with an offset
	exprRegisterLast    = 0x8f
	exprRegisterX       = 0x92
	exprDereferenceSize = 0x94
	exprNop             = 0x96
)

// evaluation computes an expression.
type evaluation struct {
	cursor
	state    State // a copy: the caller's stays on the stack
	memory   Memory
	operands []uint64
	err      error
}

// evaluate returns what an expression comes to. Its stack begins with the given
// operands.
func (t *Table) evaluate(expression code, s *State, m Memory, operands ...uint64) (uint64, error) {
	// Its offsets are relative, and it may not leave itself.
	bytes := t.frames.bytes[expression.start:expression.end]
	e := &evaluation{cursor: t.cursor(bytes, 0), state: *s, memory: m,
		operands: operands}
	for n := 0; !e.Done(); n++ {
		if !t.unwinder.spend(1) {
			return 0, ErrWork
		}
		at := e.At
		op := e.Uint8()
		known := e.value(op) || e.arrange(op) || e.one(op) || e.two(op) || e.jump(op)
		switch {
		case e.err != nil:
			return 0, e.err
		case !known || e.Short || n == maxOperations || len(e.operands) > maxOperands:
			return 0, fmt.Errorf("%w: operation %#x at %d of an expression", errMalformed, op, at)
		}
	}
	return e.pop(), e.err
}

func (e *evaluation) push(value uint64) { e.operands = append(e.operands, value) }

func (e *evaluation) pop() uint64 { return e.take1(len(e.operands) - 1) }

// take1 removes an operand.
func (e *evaluation) take1(i int) uint64 {
	if i < 0 || i >= len(e.operands) {
		e.err = errMalformed
		return 0
	}
	value := e.operands[i]
	e.operands = append(e.operands[:i], e.operands[i+1:]...)
	return value
}

func (e *evaluation) register(number uint64, offset int64) {
	value, ok := e.state.register(number)
	if !ok {
		e.err = fmt.Errorf("%w: register %d", ErrMemory, number)
	}
	e.push(value + uint64(offset))
}

// value executes what pushes a new value.
func (e *evaluation) value(op uint8) bool {
	switch {
	case op >= exprLiteral && op <= exprLiteralLast:
		e.push(uint64(op - exprLiteral))
	case op >= exprRegister && op <= exprRegisterLast:
		e.register(uint64(op-exprRegister), e.SLEB())
	case op >= exprConstant1 && op <= exprConstant8Signed:
		size := uint64(1) << ((op - exprConstant1) / 2)
		if op%2 == 0 {
			e.push(e.Unsigned(size))
		} else {
			e.push(e.Signed(size))
		}
	case op == exprRegisterX:
		number := e.ULEB()
		e.register(number, e.SLEB())
	case op == exprConstantULEB:
		e.push(e.ULEB())
	case op == exprConstantSLEB:
		e.push(uint64(e.SLEB()))
	default:
		return false
	}
	return true
}

// arrange executes what moves operands.
func (e *evaluation) arrange(op uint8) bool {
	last := len(e.operands) - 1
	pick := func(i int) {
		if i < 0 {
			e.err = errMalformed
			return
		}
		e.push(e.operands[i])
	}
	switch op {
	case exprDuplicate:
		pick(last)
	case exprDrop:
		e.pop()
	case exprOver:
		pick(last - 1)
	case exprPick:
		pick(last - int(e.Uint8()))
	case exprSwap:
		e.push(e.take1(last - 1))
	case exprRotate:
		// The first of three becomes the third.
		top := e.pop()
		if last < 2 {
			e.err = errMalformed
			return true
		}
		e.operands = append(e.operands[:last-2], top, e.operands[last-2], e.operands[last-1])
	case exprNop:
	default:
		return false
	}
	return true
}

// one executes what has one operand.
func (e *evaluation) one(op uint8) bool {
	switch op {
	case exprDereference, exprDereferenceSize:
		size := uint64(8)
		if op == exprDereferenceSize {
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
	case exprAbsolute:
		e.push(uint64(max(int64(e.operand()), -int64(e.pop()))))
	case exprNegate:
		e.push(-e.pop())
	case exprNot:
		e.push(^e.pop())
	case exprPlusConstant:
		e.push(e.pop() + e.ULEB())
	default:
		return false
	}
	return true
}

func (e *evaluation) operand() uint64 {
	if len(e.operands) == 0 {
		return 0
	}
	return e.operands[len(e.operands)-1]
}

// two executes what has two operands.
func (e *evaluation) two(op uint8) bool {
	if op < exprAnd || op > exprNotEqual || op == exprBranch {
		return false
	}
	b := e.pop()
	a := e.pop()
	x, y := int64(a), int64(b)
	truth := func(is bool) {
		value := uint64(0)
		if is {
			value = 1
		}
		e.push(value)
	}
	switch op {
	case exprAnd:
		e.push(a & b)
	case exprDivide, exprModulo:
		if b == 0 {
			e.err = errMalformed
		} else if op == exprDivide {
			e.push(uint64(x / y))
		} else {
			e.push(a % b)
		}
	case exprMinus:
		e.push(a - b)
	case exprMultiply:
		e.push(a * b)
	case exprOr:
		e.push(a | b)
	case exprPlus:
		e.push(a + b)
	case exprShiftLeft:
		e.push(a << b)
	case exprShiftRight:
		e.push(a >> b)
	case exprShiftSigned:
		e.push(uint64(x >> b))
	case exprXor:
		e.push(a ^ b)
	case exprEqual:
		truth(x == y)
	case exprGreaterEqual:
		truth(x >= y)
	case exprGreater:
		truth(x > y)
	case exprLessEqual:
		truth(x <= y)
	case exprLess:
		truth(x < y)
	case exprNotEqual:
		truth(x != y)
	}
	return true
}

func (e *evaluation) jump(op uint8) bool {
	if op != exprSkip && op != exprBranch {
		return false
	}
	distance := int(int16(e.Unsigned(2)))
	if op == exprBranch && e.pop() == 0 {
		return true
	}
	e.At += distance
	if e.At < 0 || e.At > len(e.Bytes) {
		e.err = errMalformed
	}
	return true
}
