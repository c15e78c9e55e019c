// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
)

// State has the registers in a function on the stack, as far as they are known.
type State struct {
	// PC is the address of the instruction that is executed. In all frames but
	// the innermost it is where the called function returns to.
	PC uint64

	// Registers are by the numbers of DWARF. A register that a called function
	// has overwritten without saving it has the value of that function.
	Registers [MaxRegisters]uint64

	// lost are the registers whose value is not known, a bit for each.
	lost uint64

	// returned: PC is where a call returns to, so that the call, perhaps of
	// another function's last line, is before it.
	returned bool
}

func (s *State) register(number uint64) (uint64, bool) {
	if number >= MaxRegisters || s.lost&(1<<number) != 0 {
		return 0, false
	}
	return s.Registers[number], true
}

func (s *State) set(number int, value uint64, ok bool) {
	s.Registers[number] = value
	s.lost &^= 1 << number
	if !ok {
		s.lost |= 1 << number
	}
}

// Executes returns an address within the instruction that is executed: PC, or
// the byte before where PC is a return address.
func (s *State) Executes() uint64 {
	if s.returned {
		return s.PC - 1
	}
	return s.PC
}

// Memory is a copy of a part of a stack.
type Memory struct {
	Address uint64
	Bytes   []byte
}

func (m Memory) read(order binary.ByteOrder, address, size uint64) (uint64, bool) {
	skip := address - m.Address
	if skip > uint64(len(m.Bytes)) || uint64(len(m.Bytes))-skip < size {
		return 0, false
	}
	c := cursor{bytes: m.Bytes[skip:], order: order}
	return c.unsigned(size), true
}

// Step changes the state in a function into the state in its caller. The bias
// is what is to be added to addresses of the file to get those of the process.
// After an error the state is as before.
//
// Errors: ErrOutermost; ErrNoEntry; ErrMemory; ErrWork; another one where the
// information is malformed.
func (t *Table) Step(state *State, bias uint64, m Memory) error {
	r, err := t.row(state.Executes() - bias)
	if err != nil {
		return err
	}
	callee := *state
	s := &callee
	if i := t.machine.instruction; i >= 0 {
		s.set(i, s.PC, true)
	}
	frame, err := t.canonicalFrame(r, s, m)
	if err != nil {
		return err
	}
	caller := *s
	caller.set(t.stackPointer, frame-t.belowFrame, true)
	if !t.unwinder.spend(len(r.rules)) {
		return ErrWork
	}
	for i := range r.rules {
		rule := &r.rules[i]
		if rule.number == t.stackPointer && rule.kind == isUndefined {
			continue // it is saved where it cannot be read, as functions of s390x do in f0
		}
		value, err := t.value(rule, s, frame, m)
		if err != nil && (rule.number == r.returns || errors.Is(err, ErrWork)) {
			return err
		}
		caller.set(rule.number, value, err == nil)
	}
	pc, ok := caller.register(uint64(r.returns))
	if !ok {
		return ErrMemory
	}
	caller.PC = pc & t.machine.address
	caller.returned = !r.signal
	if caller.PC == 0 {
		return ErrOutermost
	}
	if caller.PC == s.PC && caller.Registers[t.stackPointer] == s.Registers[t.stackPointer] {
		return fmt.Errorf("%w: a function is its own caller", errMalformed)
	}
	*state = caller
	return nil
}

// canonicalFrame returns the address that the others are relative to.
func (t *Table) canonicalFrame(r *row, s *State, m Memory) (uint64, error) {
	if r.frame.kind == isExpression {
		return t.evaluate(r.frame.expression, s, m)
	}
	value, ok := s.register(uint64(r.frame.register))
	if !ok {
		return 0, fmt.Errorf("%w: register %d", ErrMemory, r.frame.register)
	}
	return value + uint64(r.frame.offset), nil
}

// value returns what a register is in the caller.
func (t *Table) value(r *registerRule, s *State, frame uint64, m Memory) (uint64, error) {
	address := frame + uint64(r.offset)
	switch r.kind {
	case isUndefined:
		return 0, ErrOutermost
	case isOffset:
		return address, nil
	case isRegister:
		value, ok := s.register(uint64(r.register))
		if !ok {
			return 0, ErrMemory
		}
		return value, nil
	case isExpression:
		return t.evaluate(r.expression, s, m, frame)
	case isSavedAt:
		var err error
		if address, err = t.evaluate(r.expression, s, m, frame); err != nil {
			return 0, err
		}
	}
	value, ok := m.read(t.order, address, 8)
	if !ok {
		return 0, ErrMemory
	}
	return value, nil
}

// StepByFramePointer is [Table.Step] for code without call frame information.
// It assumes that the code has frame pointers, in the usual register. It
// reports whether there is such a frame: on the stack, above that of the
// function called.
func StepByFramePointer(kernel elf.Machine, order binary.ByteOrder, s *State, m Memory) bool {
	t := machines[kernel]
	if t == nil || t.savedReturn == 0 {
		return false
	}
	frame, ok := s.register(uint64(t.framePointer))
	if !ok || frame%8 != 0 || frame < s.Registers[t.stackPointer] {
		return false
	}
	saved, ok := m.read(order, frame+uint64(t.savedFrame), 8)
	if !ok {
		return false
	}
	pc, ok := m.read(order, frame+uint64(t.savedReturn), 8)
	if pc &= t.address; !ok || pc == 0 {
		return false
	}
	s.set(t.framePointer, saved, true)
	s.set(t.stackPointer, frame+uint64(t.frame), true)
	s.PC, s.returned = pc, true
	return true
}
