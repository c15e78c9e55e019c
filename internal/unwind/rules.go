// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "fmt"

// kind says how the caller's value of a register is found.
type kind uint8

const (
	isSame       kind = iota // it is the same, or nothing is said
	isUndefined              // it is lost
	isSaved                  // at an offset from the canonical frame address
	isOffset                 // it is that address
	isRegister               // it is in another register
	isSavedAt                // at the address that an expression comes to
	isExpression             // it is what an expression comes to
)

// rule says how to find one value. Of the canonical frame address it is
// isRegister, with an offset, or isExpression.
type rule struct {
	kind       kind
	register   uint8
	offset     int64
	expression code
}

// rules are those of all registers at one place in a function.
type rules struct {
	frame     rule // the canonical frame address
	registers [MaxRegisters]rule
}

// row is how to find the caller of a place in a function.
type row struct {
	frame   rule
	rules   []registerRule
	returns int // the register that has the return address
	signal  bool
}

// registerRule is the rule of a register that is not the same.
type registerRule struct {
	number int
	rule
}

// The instructions (DW_CFA_*). The first three have an operand in their lower
// six bits.
const (
	opAdvance  = 0x40
	opOffset   = 0x80
	opRestore  = 0xc0
	opHighBits = 0xc0

	opNop                    = 0x00
	opSetLocation            = 0x01
	opAdvance1               = 0x02
	opAdvance2               = 0x03
	opAdvance4               = 0x04
	opOffsetExtended         = 0x05
	opRestoreExtended        = 0x06
	opUndefined              = 0x07
	opSameValue              = 0x08
	opRegister               = 0x09
	opRememberState          = 0x0a
	opRestoreState           = 0x0b
	opDefineFrame            = 0x0c
	opDefineFrameRegister    = 0x0d
	opDefineFrameOffset      = 0x0e
	opDefineFrameExpression  = 0x0f
	opExpression             = 0x10
	opOffsetExtendedSigned   = 0x11
	opDefineFrameSigned      = 0x12
	opDefineFrameOffsetSign  = 0x13
	opValueOffset            = 0x14
	opValueOffsetSigned      = 0x15
	opValueExpression        = 0x16
	opSignsReturnWithAddress = 0x2c // arm64
	opSignsReturn            = 0x2d // arm64; elsewhere register windows, which no machine here has
	opArgumentsSize          = 0x2e
	opNegativeOffset         = 0x2f
)

// maxRemembered bounds the states that are remembered at a time. Compilers
// remember one or two.
const maxRemembered = 64

// interpreter executes instructions up to an address.
type interpreter struct {
	*Table
	*entry
	rules
	initial    *rules // nil while the common instructions are executed
	remembered []rules
	location   uint64
	address    uint64
}

// interpret returns the row for an address within the function.
func (t *Table) interpret(e *entry, address uint64) (*row, error) {
	if e.returns >= uint64(t.machine.registers) {
		return nil, fmt.Errorf("%w: the return address is in register %d", errMalformed, e.returns)
	}
	i := &interpreter{Table: t, entry: e, location: e.start, address: address}
	if err := i.execute(e.common.instructions); err != nil {
		return nil, err
	}
	initial := i.rules
	i.initial = &initial
	if err := i.execute(e.instructions); err != nil {
		return nil, err
	}
	r := &row{frame: i.frame, returns: int(e.returns), signal: e.signal}
	if k := r.frame.kind; k != isRegister && k != isExpression {
		return nil, fmt.Errorf("%w: no canonical frame address", errMalformed)
	}
	for n, rule := range i.registers[:t.machine.registers] {
		if rule.kind != isSame {
			r.rules = append(r.rules, registerRule{n, rule})
		}
	}
	return r, nil
}

func (i *interpreter) execute(instructions code) error {
	c := i.cursor(i.frames.bytes[:instructions.end], instructions.start)
	for !c.Done() {
		at := c.At
		op := c.Uint8()
		if !i.unwinder.spend(i.work(op)) {
			return ErrWork
		}
		operand := uint64(op &^ opHighBits)
		known := true
		switch op & opHighBits {
		case opAdvance:
			i.location += operand * i.codeFactor
		case opOffset:
			i.set(operand, rule{kind: isSaved, offset: int64(c.ULEB()) * i.dataFactor})
		case opRestore:
			i.restore(operand)
		default:
			known = i.advance(&c, op) || i.define(&c, op) || i.save(&c, op) || i.state(&c, op)
		}
		if c.Short || !known {
			return fmt.Errorf("%w: instruction %#x at %#x", errMalformed, op,
				i.frames.address+uint64(at))
		}
		if i.location > i.address {
			return nil
		}
	}
	return nil
}

// work returns how many steps an instruction takes.
func (i *interpreter) work(op uint8) int {
	if op == opRememberState || op == opRestoreState {
		return workOfState
	}
	return 1
}

// advance executes an instruction that goes on to a later place of the
// function.
func (i *interpreter) advance(c *cursor, op uint8) bool {
	switch op {
	case opSetLocation:
		i.location = c.pointer(i.encoding, 8, i.frames.address, 0)
	case opAdvance1:
		i.location += c.Unsigned(1) * i.codeFactor
	case opAdvance2:
		i.location += c.Unsigned(2) * i.codeFactor
	case opAdvance4:
		i.location += c.Unsigned(4) * i.codeFactor
	default:
		return false
	}
	return true
}

// define executes an instruction about the canonical frame address.
func (i *interpreter) define(c *cursor, op uint8) bool {
	number := uint64(i.frame.register)
	offset := i.frame.offset
	switch op {
	case opDefineFrame:
		number, offset = c.ULEB(), int64(c.ULEB())
	case opDefineFrameSigned:
		number, offset = c.ULEB(), c.SLEB()*i.dataFactor
	case opDefineFrameRegister:
		number = c.ULEB()
	case opDefineFrameOffset:
		offset = int64(c.ULEB())
	case opDefineFrameOffsetSign:
		offset = c.SLEB() * i.dataFactor
	case opDefineFrameExpression:
		i.frame = rule{kind: isExpression, expression: c.block()}
		return true
	default:
		return false
	}
	if number >= uint64(i.machine.registers) {
		return false
	}
	i.frame = rule{kind: isRegister, register: uint8(number), offset: offset}
	return true
}

// save executes an instruction about a register.
func (i *interpreter) save(c *cursor, op uint8) bool {
	if op < opOffsetExtended || op > opValueExpression && op != opNegativeOffset ||
		op == opRememberState || op == opRestoreState {
		return false
	}
	number := c.ULEB()
	switch op {
	case opOffsetExtended:
		i.set(number, rule{kind: isSaved, offset: int64(c.ULEB()) * i.dataFactor})
	case opNegativeOffset:
		i.set(number, rule{kind: isSaved, offset: -int64(c.ULEB()) * i.dataFactor})
	case opOffsetExtendedSigned:
		i.set(number, rule{kind: isSaved, offset: c.SLEB() * i.dataFactor})
	case opValueOffset:
		i.set(number, rule{kind: isOffset, offset: int64(c.ULEB()) * i.dataFactor})
	case opValueOffsetSigned:
		i.set(number, rule{kind: isOffset, offset: c.SLEB() * i.dataFactor})
	case opExpression:
		i.set(number, rule{kind: isSavedAt, expression: c.block()})
	case opValueExpression:
		i.set(number, rule{kind: isExpression, expression: c.block()})
	case opRestoreExtended:
		i.restore(number)
	case opUndefined:
		i.set(number, rule{kind: isUndefined})
	case opSameValue:
		i.set(number, rule{kind: isSame})
	case opRegister:
		from := c.ULEB()
		if from >= uint64(i.machine.registers) {
			i.set(number, rule{kind: isUndefined}) // such as a floating point register
			break
		}
		i.set(number, rule{kind: isRegister, register: uint8(from)})
	default:
		return false
	}
	return true
}

// state executes what else there is.
func (i *interpreter) state(c *cursor, op uint8) bool {
	switch op {
	case opRememberState:
		if len(i.remembered) == maxRemembered {
			return false
		}
		i.remembered = append(i.remembered, i.rules)
	case opRestoreState:
		last := len(i.remembered) - 1
		if last < 0 {
			return false
		}
		i.rules, i.remembered = i.remembered[last], i.remembered[:last]
	case opArgumentsSize:
		c.ULEB()
	case opNop, opSignsReturn, opSignsReturnWithAddress:
	default:
		return false
	}
	return true
}

// set gives a register a rule. Those of vector registers and the like are not
// kept.
func (i *interpreter) set(number uint64, r rule) {
	if number < MaxRegisters {
		i.registers[number] = r
	}
}

// restore gives a register the rule that it has at the beginning.
func (i *interpreter) restore(number uint64) {
	if number < MaxRegisters && i.initial != nil {
		i.registers[number] = i.initial.registers[number]
	}
}

// block reads an expression.
func (c *cursor) block() code {
	size := c.ULEB()
	start := c.At
	c.Take(size)
	return code{start, c.At}
}
