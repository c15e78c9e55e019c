// SPDX-License-Identifier: BSD-2-Clause

package unwind

import "fmt"

// kind is a way to find the caller's value of a register.
type kind uint8

const (
	isSame       kind = iota // the value is the same, or there is no rule
	isUndefined              // the value is lost
	isSaved                  // the value is saved at an offset from the canonical frame address
	isOffset                 // the value is the canonical frame address plus an offset
	isRegister               // the value is in another register
	isSavedAt                // the value is saved at the address that an expression gives
	isExpression             // the value is that of an expression
)

// rule is the way to find one value. The canonical frame address is isRegister,
// with an offset, or isExpression.
type rule struct {
	kind       kind
	register   uint8
	offset     int64
	expression code
}

// rules are the rules of all registers at one place in a function.
type rules struct {
	frame     rule // of the canonical frame address
	registers [MaxRegisters]rule
}

// row has the rules to find the caller from a place in a function.
type row struct {
	frame   rule // of the canonical frame address
	rules   []registerRule
	returns int  // number of the register with the return address
	signal  bool // the frame is that of an interrupted function
}

// registerRule is the rule of a register whose value is not the same.
type registerRule struct {
	number int
	rule
}

// maxRemembered bounds the states that DW_CFA_remember_state puts on the stack.
// Compilers remember one or two.
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
	for !c.Done() && i.location <= i.address {
		at := c.At
		op := c.Uint8()
		work := 1
		if op == rememberState || op == restoreState {
			work = workOfState
		}
		if !i.spend(work) {
			return ErrWork
		}
		if known := i.instruction(&c, op); c.Short || !known {
			return fmt.Errorf("%w: instruction %#x at %#x", errMalformed, op,
				i.frames.address+uint64(at))
		}
	}
	return nil
}

const (
	rememberState = 0x0a // DW_CFA_remember_state
	restoreState  = 0x0b // DW_CFA_restore_state
)

// registerRules are the instructions that give a register a rule, indexed by
// their codes. The number of the register comes first.
var registerRules = [...]func(i *interpreter, c *cursor) rule{
	0x05: func(i *interpreter, c *cursor) rule { // DW_CFA_offset_extended
		return rule{kind: isSaved, offset: int64(c.ULEB()) * i.dataFactor}
	},
	0x07: func(*interpreter, *cursor) rule { return rule{kind: isUndefined} }, // DW_CFA_undefined
	0x08: func(*interpreter, *cursor) rule { return rule{kind: isSame} },      // DW_CFA_same_value
	0x09: func(i *interpreter, c *cursor) rule { // DW_CFA_register
		if from := c.ULEB(); from < uint64(i.machine.registers) {
			return rule{kind: isRegister, register: uint8(from)}
		}
		return rule{kind: isUndefined} // such as a floating point register
	},
	0x10: func(_ *interpreter, c *cursor) rule { // DW_CFA_expression
		return rule{kind: isSavedAt, expression: c.block()}
	},
	0x11: func(i *interpreter, c *cursor) rule { // DW_CFA_offset_extended_sf
		return rule{kind: isSaved, offset: c.SLEB() * i.dataFactor}
	},
	0x14: func(i *interpreter, c *cursor) rule { // DW_CFA_val_offset
		return rule{kind: isOffset, offset: int64(c.ULEB()) * i.dataFactor}
	},
	0x15: func(i *interpreter, c *cursor) rule { // DW_CFA_val_offset_sf
		return rule{kind: isOffset, offset: c.SLEB() * i.dataFactor}
	},
	0x16: func(_ *interpreter, c *cursor) rule { // DW_CFA_val_expression
		return rule{kind: isExpression, expression: c.block()}
	},
	0x2f: func(i *interpreter, c *cursor) rule { // DW_CFA_GNU_negative_offset_extended
		return rule{kind: isSaved, offset: -int64(c.ULEB()) * i.dataFactor}
	},
}

// instruction executes an instruction, and reports whether it is known.
func (i *interpreter) instruction(c *cursor, op uint8) bool {
	// The first three have an operand in their lower six bits.
	operand := uint64(op & 0x3f)
	switch op & 0xc0 {
	case 0x40: // DW_CFA_advance_loc
		i.location += operand * i.codeFactor
		return true
	case 0x80: // DW_CFA_offset
		i.set(operand, rule{kind: isSaved, offset: int64(c.ULEB()) * i.dataFactor})
		return true
	case 0xc0: // DW_CFA_restore
		i.restore(operand)
		return true
	}
	if int(op) < len(registerRules) && registerRules[op] != nil {
		number := c.ULEB()
		i.set(number, registerRules[op](i, c))
		return true
	}
	switch op {
	case 0x00: // DW_CFA_nop
	case 0x01: // DW_CFA_set_loc
		i.location = c.pointer(i.encoding, i.frames.address, 0)
	case 0x02, 0x03, 0x04: // DW_CFA_advance_loc1, 2 and 4
		i.location += c.Unsigned(1<<(op-0x02)) * i.codeFactor
	case 0x06: // DW_CFA_restore_extended
		i.restore(c.ULEB())
	case rememberState:
		if len(i.remembered) == maxRemembered {
			return false
		}
		i.remembered = append(i.remembered, i.rules)
	case restoreState:
		last := len(i.remembered) - 1
		if last < 0 {
			return false
		}
		i.rules, i.remembered = i.remembered[last], i.remembered[:last]
	case 0x0c: // DW_CFA_def_cfa
		return i.define(c.ULEB(), int64(c.ULEB()))
	case 0x0d: // DW_CFA_def_cfa_register
		return i.define(c.ULEB(), i.frame.offset)
	case 0x0e: // DW_CFA_def_cfa_offset
		return i.define(uint64(i.frame.register), int64(c.ULEB()))
	case 0x0f: // DW_CFA_def_cfa_expression
		i.frame = rule{kind: isExpression, expression: c.block()}
	case 0x12: // DW_CFA_def_cfa_sf
		return i.define(c.ULEB(), c.SLEB()*i.dataFactor)
	case 0x13: // DW_CFA_def_cfa_offset_sf
		return i.define(uint64(i.frame.register), c.SLEB()*i.dataFactor)
	case 0x2c, 0x2d: // DW_CFA_AARCH64_negate_ra_state_with_pc and _negate_ra_state
	case 0x2e: // DW_CFA_GNU_args_size
		c.ULEB()
	default:
		return false
	}
	return true
}

// define sets the rule of the canonical frame address, and reports whether the
// register exists.
func (i *interpreter) define(register uint64, offset int64) bool {
	i.frame = rule{kind: isRegister, register: uint8(register), offset: offset}
	return register < uint64(i.machine.registers)
}

// set gives a register a rule. Rules of vector registers and the like are not
// kept.
func (i *interpreter) set(number uint64, r rule) {
	if number < MaxRegisters {
		i.registers[number] = r
	}
}

// restore gives a register the rule that it has at the start of the function.
func (i *interpreter) restore(number uint64) {
	if number < MaxRegisters && i.initial != nil {
		i.registers[number] = i.initial.registers[number]
	}
}

func (c *cursor) block() code {
	size := c.ULEB()
	start := c.At
	c.Take(size)
	return code{start, c.At}
}
