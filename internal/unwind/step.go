// SPDX-License-Identifier: BSD-2-Clause

package unwind

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/gousdt/gousdt/internal/debuginfo"
)

// State has the registers in a function on the stack, as far as they are known.
type State struct {
	// PC is the address of the instruction that is executed. In all frames but
	// the innermost it is the address to which the called function returns.
	PC uint64

	// Registers are indexed by their DWARF numbers. A register that a called
	// function has overwritten without saving it has the value of that
	// function.
	Registers [MaxRegisters]uint64

	// lost has a bit for each register whose value is not known.
	lost uint64

	// returned means that PC is a return address. The call before it may be the
	// last instruction of its function, and PC in the next function.
	returned bool

	// Trail keeps what the walk depends on, unless it is nil.
	Trail *Trail
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
// the byte before if PC is a return address.
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
	c := debuginfo.Cursor{Bytes: m.Bytes[skip:], Order: order}
	return c.Unsigned(size), true
}

// Step changes the state in a function into the state in its caller. An address
// of the file plus the bias is the address in the process. After an error the
// state is unchanged.
//
// The error is or wraps ErrOutermost, ErrNoEntry, ErrMemory or ErrWork, or says
// how the information is malformed.
func (t *Table) Step(state *State, bias uint64, m Memory) (err error) {
	r, err := t.row(state.Executes() - bias)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil && !errors.Is(err, ErrOutermost) {
			state.Trail.Lose() // such as at the end of the copy
		}
	}()
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
	sources := s.Trail.sources(t.machine)
	if !t.spend(len(r.rules)) {
		return ErrWork
	}
	for i := range r.rules {
		rule := &r.rules[i]
		if rule.number == t.stackPointer && rule.kind == isUndefined {
			continue // saved in a register that is not kept, such as f0 on s390x
		}
		value, err := t.value(rule, s, frame, m)
		if err != nil && (rule.number == r.returns || errors.Is(err, ErrWork)) {
			return err
		}
		caller.set(rule.number, value, err == nil)
		s.Trail.restore(&sources, rule, frame)
	}
	pc, ok := caller.register(uint64(r.returns))
	if !ok {
		return ErrMemory
	}
	s.Trail.returns(&sources, int(r.returns), pc)
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

// canonicalFrame returns the canonical frame address, to which the offsets of
// rules are relative.
func (t *Table) canonicalFrame(r *row, s *State, m Memory) (uint64, error) {
	if r.frame.kind == isExpression {
		s.Trail.Lose()
		return t.evaluate(r.frame.expression, s, m)
	}
	value, ok := s.register(uint64(r.frame.register))
	if !ok {
		return 0, fmt.Errorf("%w: register %d", ErrMemory, r.frame.register)
	}
	s.Trail.use(int(r.frame.register), value)
	return value + uint64(r.frame.offset), nil
}

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
// It takes the usual register for a frame pointer, and reports whether that
// leads to a frame on the stack, above the one of the called function. If not,
// the state is unchanged.
func StepByFramePointer(kernel elf.Machine, order binary.ByteOrder, s *State, m Memory) bool {
	t := machines[kernel]
	if t == nil || t.savedReturn == 0 {
		return false
	}
	frame, ok := s.register(uint64(t.framePointer))
	if ok && frame == 0 {
		s.Trail.useZero(t.framePointer)
		return false
	}
	saved, hasSaved := m.read(order, frame+uint64(t.savedFrame), 8)
	returns, hasReturn := m.read(order, frame+uint64(t.savedReturn), 8)
	if !ok || frame%8 != 0 || frame < s.Registers[t.stackPointer] || !hasSaved || !hasReturn {
		s.Trail.Lose()
		return false
	}
	s.Trail.followFrame(t, frame, returns)
	pc := returns & t.address
	if pc == 0 {
		return false
	}
	s.set(t.framePointer, saved, true)
	s.set(t.stackPointer, frame+uint64(t.frame), true)
	s.PC, s.returned = pc, true
	return true
}

// HasFramePointer reports whether the function at an address in the file has
// set up its frame pointer at that address, so that a stack can be walked from
// there without call frame information. ok is false if that is not known.
func (t *Table) HasFramePointer(address uint64) (has, ok bool) {
	r, err := t.answer(address)
	if err != nil {
		return false, false
	}
	switch t.machine {
	case machines[elf.EM_X86_64], machines[elf.EM_RISCV]:
		// The canonical frame address is relative to it.
		return r.frame.kind == isRegister && int(r.frame.register) == t.framePointer, true
	case machines[elf.EM_AARCH64]:
		// The caller's is saved, with the return address beside it.
		return slices.ContainsFunc(r.rules, func(rule registerRule) bool {
			return rule.number == t.framePointer && rule.kind == isSaved
		}), true
	}
	return false, false
}

// IsSignal reports whether a signal handler returns to the function at an
// address in the file.
func (t *Table) IsSignal(address uint64) bool {
	r, err := t.answer(address)
	return err == nil && r.signal
}

// Frame says how the canonical frame address at an instruction is found. That
// address is the same at all instructions of one invocation of a function. It
// is Register plus Offset.
type Frame struct {
	Register int // by its DWARF number
	Offset   int64

	// Saved says that Register plus Offset is not the address itself, but where
	// the function has saved it: on the stack, too, and in one place for all of
	// the invocation. Functions that align their stack do that.
	Saved bool

	// Code is the range of addresses that the entry is for: a function, or a
	// part of one that the compiler has put elsewhere. Such a part is not
	// called, but jumped to, and so its first instruction has a frame already.
	Start, Size uint64
	IsPart      bool
}

// Frame returns how the frame is found at an address in the file.
func (t *Table) Frame(address uint64) (Frame, error) {
	r, err := t.answer(address)
	if err != nil {
		return Frame{}, err
	}
	at, _ := t.lookup(address) // the row has been found by it
	e, _, err := t.entry(at)
	if err != nil {
		return Frame{}, err
	}
	f := Frame{Register: int(r.frame.register), Offset: r.frame.offset, Start: e.start, Size: e.size}
	if r.frame.kind == isExpression {
		c := t.cursor(t.frames.bytes[:r.frame.expression.end], r.frame.expression.start)
		op := c.Uint8()
		f.Register, f.Offset, f.Saved = int(op)-0x70, c.SLEB(), true // DW_OP_breg0 and on
		if c.Uint8() != 0x06 || !c.Done() || c.Short || f.Register < 0 ||
			f.Register >= t.machine.registers { // DW_OP_deref
			return Frame{}, fmt.Errorf("%w: an expression gives the frame", ErrNoEntry)
		}
	}
	first, err := t.answer(e.start)
	f.IsPart = err == nil && (first.frame.kind != isRegister ||
		first.frame.register != uint8(t.stackPointer) || first.frame.offset != t.machine.atEntry)
	return f, nil
}

// answer is row for a single question, with work of its own.
func (t *Table) answer(address uint64) (*row, error) {
	t.Work = max(t.Work, 1<<16)
	return t.row(address)
}

// MaxRegisters is the largest number of registers of a machine: the general
// ones, and on x86-64 the instruction pointer.
const MaxRegisters = 32

// machine has the numbers of registers, as the machine's ABI for DWARF gives
// them.
type machine struct {
	registers    int // how many there are
	stackPointer int
	framePointer int

	// instruction is the number of the instruction pointer, -1 if it has none.
	instruction int

	// Offsets from the frame pointer in a function that has one: of the saved
	// frame pointer of the caller, of the return address, and of the place to
	// which the stack pointer returns. All are 0 if they are not known.
	savedFrame, savedReturn, frame int64

	// belowFrame is how far the caller's stack pointer is below the canonical
	// frame address. atEntry is how far the stack pointer is below it at the
	// first instruction of a function.
	belowFrame uint64
	atEntry    int64

	// address is the mask for return addresses. Bits outside it may be a
	// signature.
	address uint64
}

var machines = map[elf.Machine]*machine{
	elf.EM_X86_64: {
		registers: 17, stackPointer: 7, framePointer: 6, instruction: 16,
		savedFrame: 0, savedReturn: 8, frame: 16, atEntry: 8, address: 1<<64 - 1,
	},
	// Signatures are above the 48 bits of addresses that programs get unless
	// they ask for more.
	elf.EM_AARCH64: {
		registers: 32, stackPointer: 31, framePointer: 29, instruction: -1,
		savedFrame: 0, savedReturn: 8, frame: 16, address: 1<<48 - 1,
	},
	elf.EM_RISCV: {
		registers: 32, stackPointer: 2, framePointer: 8, instruction: -1,
		savedFrame: -16, savedReturn: -8, frame: 0, address: 1<<64 - 1,
	},
	elf.EM_S390: {
		registers: 16, stackPointer: 15, framePointer: 11, instruction: -1, belowFrame: 160,
		atEntry: 160, address: 1<<64 - 1,
	},
}

// Pointers returns the numbers of a machine's stack pointer and frame pointer,
// 0 if the machine is not known.
func Pointers(of elf.Machine) (stackPointer, framePointer int) {
	if m := machines[of]; m != nil {
		return m.stackPointer, m.framePointer
	}
	return 0, 0
}

const (
	// The bytes in memory of a row, and of each of its rules. A row takes some
	// 300 bytes, and programs call from a few thousand places on their hot
	// paths.
	rowSize     = 160
	rowRuleSize = 48

	// workOfRow is the work to find the entry for an address, and workOfState
	// the work to remember or restore the rules of all registers.
	workOfRow   = 32
	workOfState = 16
)

// spend takes steps from Work, and reports whether there were enough.
func (t *Table) spend(steps int) bool {
	if t.Work < steps {
		t.Work = 0
		return false
	}
	t.Work -= steps
	return true
}

// row returns the rules to find the caller of the instruction at an address in
// the file.
func (t *Table) row(address uint64) (*row, error) {
	if !t.spend(1) {
		return nil, ErrWork
	}
	if r, ok := t.rows[address]; ok {
		if r == nil {
			return nil, ErrNoEntry
		}
		return r, nil
	}
	r, err := t.newRow(address)
	if errors.Is(err, ErrWork) {
		return nil, err
	}
	if t.rows == nil {
		t.rows = make(map[uint64]*row)
	}
	t.rows[address] = r
	t.rowBytes += rowSize
	if err != nil {
		return nil, fmt.Errorf("%w: %v", ErrNoEntry, err)
	}
	t.rowBytes += rowRuleSize * len(r.rules)
	return r, nil
}

func (t *Table) newRow(address uint64) (*row, error) {
	if !t.spend(workOfRow) {
		return nil, ErrWork
	}
	at, ok := t.lookup(address)
	if !ok {
		return nil, ErrNoEntry
	}
	e, _, err := t.entry(at)
	if err != nil {
		return nil, err
	}
	if address-e.start >= e.size {
		return nil, ErrNoEntry
	}
	return t.interpret(e, address)
}
