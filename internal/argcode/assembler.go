// SPDX-License-Identifier: BSD-2-Clause

// Package argcode assembles BPF code, and generates what fetches the arguments
// of one site. Package trace makes its programs of it.
package argcode

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// StackSize is the stack of a BPF program (MAX_BPF_STACK).
const StackSize = 512

// ErrStack says that code needs more stack than a BPF program has.
var ErrStack = errors.New("needs more than the 512 bytes of a BPF program's stack: use fewer or shorter keys and strings")

// Label names a place in the code, to be jumped to.
type Label int

// An Assembler collects instructions. It leaves out those that cannot be
// reached, because the kernel refuses them.
type Assembler struct {
	ins    []asm.Instruction
	jumps  map[int]Label // index of a jump: where it goes
	places []int         // label: index of the instruction there, -1 before it is placed

	deferred []func() // code away from the common path
	used     int      // bytes of the stack
	err      error    // the first one
}

// NewAssembler returns an Assembler without instructions.
func NewAssembler() *Assembler { return &Assembler{jumps: make(map[int]Label)} }

// Emit adds instructions.
func (a *Assembler) Emit(ins ...asm.Instruction) { a.ins = append(a.ins, ins...) }

// Label returns a new label, which is to be placed.
func (a *Assembler) Label() Label {
	a.places = append(a.places, -1)
	return Label(len(a.places) - 1)
}

// Place puts a label in front of the next instruction.
func (a *Assembler) Place(l Label) { a.places[l] = len(a.ins) }

func (a *Assembler) jump(ins asm.Instruction, to Label) {
	a.jumps[len(a.ins)] = to
	a.ins = append(a.ins, ins)
}

// Jump goes to a label.
func (a *Assembler) Jump(to Label) { a.jump(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}, to) }

// JumpIf compares a register with a register.
func (a *Assembler) JumpIf(op asm.JumpOp, dst, src asm.Register, to Label) {
	a.jump(asm.Instruction{OpCode: op.Op(asm.RegSource), Dst: dst, Src: src}, to)
}

// JumpIfImm compares a register with 64 bits. They are loaded into scratch if
// they are not 32 bits extended by sign.
func (a *Assembler) JumpIfImm(
	op asm.JumpOp, dst asm.Register, value uint64, scratch asm.Register, to Label,
) {
	if Fits32(value) {
		a.jump(asm.Instruction{OpCode: op.Op(asm.ImmSource), Dst: dst, Constant: int64(value)}, to)
	} else {
		a.Emit(asm.LoadImm(scratch, int64(value), asm.DWord))
		a.JumpIf(op, dst, scratch, to)
	}
}

// If emits code that runs only where a comparison, as of JumpIfImm, holds.
func (a *Assembler) If(
	op asm.JumpOp, dst asm.Register, value uint64, scratch asm.Register, then func(),
) {
	end := a.Label()
	a.JumpIfImm(opposites[op], dst, value, scratch, end)
	then()
	a.Place(end)
}

// Rarely is If for code that is emitted after everything else.
func (a *Assembler) Rarely(
	op asm.JumpOp, dst asm.Register, value uint64, scratch asm.Register, then func(),
) {
	rare, back := a.Label(), a.Label()
	a.JumpIfImm(op, dst, value, scratch, rare)
	a.Place(back)
	a.Aside(rare, back, then)
}

// Leave ends the program.
func (a *Assembler) Leave() { a.Emit(asm.Mov.Imm(asm.R0, 0), asm.Return()) }

// A Map is the descriptor of a map, and At a place relative to a register, as
// arguments of Call.
type (
	Map int
	At  struct {
		Base   asm.Register
		Offset int
	}
)

// Call calls a helper with arguments: a register, an int or uint64, a Map, or
// an At. One that is nil, and those that are missing, are there already.
func (a *Assembler) Call(fn asm.BuiltinFunc, arguments ...any) {
	for i, argument := range arguments {
		dst := asm.R1 + asm.Register(i)
		switch from := argument.(type) {
		case asm.Register:
			a.Emit(asm.Mov.Reg(dst, from))
		case int:
			a.Set(dst, uint64(from))
		case uint64:
			a.Set(dst, from)
		case Map:
			a.Emit(asm.LoadMapPtr(dst, int(from)))
		case At:
			a.AddressOf(dst, from.Base, from.Offset)
		}
	}
	a.Emit(fn.Call())
}

// CallOr is Call that goes to failed unless the helper answers 0.
func (a *Assembler) CallOr(failed Label, fn asm.BuiltinFunc, arguments ...any) {
	a.Call(fn, arguments...)
	a.JumpIfImm(asm.JNE, asm.R0, 0, asm.R1, failed)
}

// Set loads 64 bits.
func (a *Assembler) Set(dst asm.Register, value uint64) {
	if Fits32(value) {
		a.Emit(asm.Mov.Imm(dst, int32(value)))
	} else {
		a.Emit(asm.LoadImm(dst, int64(value), asm.DWord))
	}
}

// CompareExchange sets a word of memory to src if the word is equal to R0, and
// R0 to what the word was.
//
// cilium/ebpf v0.22.0 encodes each atomic operation as an addition unless the
// instruction's immediate is set.
func (a *Assembler) CompareExchange(base asm.Register, offset int, src asm.Register) {
	ins := asm.CmpXchg.Mem(base, src, asm.DWord, int16(offset))
	ins.Constant = CompareExchangeCode
	a.Emit(ins)
}

// CompareExchangeCode is the immediate of an atomic compare and exchange
// (BPF_CMPXCHG | BPF_FETCH).
const CompareExchangeCode = 0xf1

// Compute calculates with 64 bits, which may take scratch as in JumpIfImm.
func (a *Assembler) Compute(op asm.ALUOp, dst asm.Register, value uint64, scratch asm.Register) {
	if Fits32(value) {
		a.Emit(op.Imm(dst, int32(value)))
	} else {
		a.Emit(asm.LoadImm(scratch, int64(value), asm.DWord), op.Reg(dst, scratch))
	}
}

// AddressOf sets a register to a place relative to another one.
func (a *Assembler) AddressOf(dst, base asm.Register, offset int) {
	a.Emit(asm.Mov.Reg(dst, base))
	if offset != 0 {
		a.Emit(asm.Add.Imm(dst, int32(offset)))
	}
}

// SetField stores a constant of 64 bits.
func (a *Assembler) SetField(base asm.Register, offset int, value uint64, scratch asm.Register) {
	a.Set(scratch, value)
	a.Emit(asm.StoreMem(base, int16(offset), scratch, asm.DWord))
}

// Alloc takes bytes of the stack, aligned to 8, and returns their offset from
// R10.
func (a *Assembler) Alloc(size int) int {
	a.used += (size + 7) &^ 7
	if a.used > StackSize {
		a.Fail(ErrStack)
	}
	return -a.used
}

// Scratch emits code whose part of the stack is free again after it.
func (a *Assembler) Scratch(emit func()) {
	used := a.used
	emit()
	a.used = used
}

// Temporary takes bytes of the stack for the next instructions alone, and
// returns their offset from R10.
func (a *Assembler) Temporary(size int) int {
	used := a.used
	at := a.Alloc(size)
	a.used = used
	return at
}

// Fail keeps the first error for Finish.
func (a *Assembler) Fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// Later emits code after everything else.
func (a *Assembler) Later(emit func()) {
	used := a.used
	a.deferred = append(a.deferred, func() {
		a.used = used
		emit()
	})
}

// Aside emits, after everything else, code at a label that ends with a jump
// back.
func (a *Assembler) Aside(label, back Label, emit func()) {
	a.Later(func() {
		a.Place(label)
		emit()
		a.Jump(back)
	})
}

// Search emits a search for the last of ascending numbers that the one in a
// register is above, as the jump op compares them; if it is above none, for the
// first. leaf emits the code for one of them, from which control must not reach
// the code after it.
func (a *Assembler) Search(op asm.JumpOp, register asm.Register, numbers []uint64,
	scratch asm.Register, leaf func(i int),
) {
	var among func(from, to int)
	among = func(from, to int) {
		if to-from == 1 {
			leaf(from)
			return
		}
		lower, half := a.Label(), (from+to)/2
		a.JumpIfImm(opposites[op], register, numbers[half], scratch, lower)
		among(half, to)
		a.Place(lower)
		among(from, half)
	}
	among(0, len(numbers))
}

// Element sets R0 to the element of a map whose key is on the stack, or to 0 if
// there is none.
func (a *Assembler) Element(fd, key int) {
	a.Call(asm.FnMapLookupElem, Map(fd), At{asm.R10, key})
}

// LookUp is Element that goes to none if there is none.
func (a *Assembler) LookUp(fd, key int, none Label) {
	a.Element(fd, key)
	a.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
}

// IfElement emits code that runs only where a map has an element for a key on
// the stack, which is in R0 then.
func (a *Assembler) IfElement(fd, key int, then func()) {
	none := a.Label()
	a.LookUp(fd, key, none)
	then()
	a.Place(none)
}

// LookUpIndex is LookUp in an array. The index takes 4 bytes of the stack.
func (a *Assembler) LookUpIndex(fd, key int, index uint32, none Label) {
	a.Emit(asm.StoreImm(asm.R10, int16(key), int64(index), asm.Word))
	a.LookUp(fd, key, none)
}

// ProcessTo stores the number of the process in the initial PID namespace in 4
// bytes of the stack.
func (a *Assembler) ProcessTo(at int) {
	a.Call(asm.FnGetCurrentPidTgid)
	a.Emit(asm.RSh.Imm(asm.R0, 32), asm.StoreMem(asm.R10, int16(at), asm.R0, asm.Word))
}

// Increment adds one to a word of memory, atomically.
func (a *Assembler) Increment(base asm.Register, offset int) {
	a.Emit(asm.Mov.Imm(asm.R1, 1), asm.AddAtomic.Mem(base, asm.R1, asm.DWord, int16(offset)))
}

// Finish emits the deferred code, leaves out what cannot be reached, and
// resolves all jumps.
func (a *Assembler) Finish() (asm.Instructions, error) {
	for len(a.deferred) > 0 {
		emit := a.deferred[0]
		a.deferred = a.deferred[1:]
		emit()
	}
	if a.err != nil {
		return nil, a.err
	}
	a.invert()
	kept, err := a.reach()
	if err != nil {
		return nil, err
	}

	// left is the size of the code from an instruction on, counted as the
	// kernel does: in units of 8 bytes, of which a load of 64 bits takes two.
	left := make([]int, len(a.ins)+1)
	for i := len(a.ins) - 1; i >= 0; i-- {
		left[i] = left[i+1]
		// A jump to the next instruction is left out.
		if to, jump := a.jumps[i]; kept[i] && jump && isJa(&a.ins[i]) && a.places[to] > i &&
			left[a.places[to]] == left[i+1] {
			kept[i] = false
		}
		if kept[i] {
			left[i] += int(a.ins[i].Size() / asm.InstructionSize)
		}
	}
	var all asm.Instructions
	for i, ins := range a.ins {
		if !kept[i] {
			continue
		}
		if to, jump := a.jumps[i]; jump {
			distance := left[i+1] - left[a.places[to]]
			if distance != int(int16(distance)) {
				return nil, fmt.Errorf("generated code: a jump over %d instructions", distance)
			}
			ins.Offset = int16(distance)
		}
		all = append(all, ins)
	}
	return all, nil
}

// invert replaces a conditional jump over a jump by one jump on the opposite
// condition.
func (a *Assembler) invert() {
	for i, over := range a.jumps {
		opposite, conditional := opposites[a.ins[i].OpCode.JumpOp()]
		if !conditional || a.places[over] != i+2 || slices.Contains(a.places, i+1) {
			continue
		}
		if to, jump := a.jumps[i+1]; jump && isJa(&a.ins[i+1]) {
			a.ins[i].OpCode = a.ins[i].OpCode.SetJumpOp(opposite)
			a.jumps[i], a.jumps[i+1] = to, over
		}
	}
}

var opposites = map[asm.JumpOp]asm.JumpOp{
	asm.JEq: asm.JNE, asm.JGT: asm.JLE, asm.JGE: asm.JLT, asm.JSGT: asm.JSLE, asm.JSGE: asm.JSLT,
	asm.JNE: asm.JEq, asm.JLE: asm.JGT, asm.JLT: asm.JGE, asm.JSLE: asm.JSGT, asm.JSLT: asm.JSGE,
}

// reach returns which instructions can be reached.
func (a *Assembler) reach() ([]bool, error) {
	reached := make([]bool, len(a.ins))
	todo := []int{0}
	for len(todo) > 0 {
		i := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for ; !reached[i]; i++ {
			reached[i] = true
			if to, jump := a.jumps[i]; jump {
				place := a.places[to]
				if place < 0 || place >= len(a.ins) {
					return nil, fmt.Errorf("generated code: jump %d leads to Label %d, which is nowhere", i, to)
				}
				todo = append(todo, place)
				if isJa(&a.ins[i]) {
					break
				}
			}
			if a.ins[i].OpCode.JumpOp() == asm.Exit {
				break
			}
			if i+1 == len(a.ins) {
				return nil, errors.New("generated code: no end")
			}
		}
	}
	return reached, nil
}

func isJa(ins *asm.Instruction) bool { return ins.OpCode.JumpOp() == asm.Ja }

// Fits32 reports whether 64 bits are 32 bits extended by sign.
func Fits32(value uint64) bool { return int64(value) == int64(int32(value)) }
