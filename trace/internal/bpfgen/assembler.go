// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
)

// stackSize is what the kernel gives a BPF program (MAX_BPF_STACK).
const stackSize = 512

// errStack is the reason why a block cannot be built that needs more stack than
// there is.
var errStack = errors.New("needs more than the 512 bytes of a BPF program's stack: use fewer or shorter keys and texts")

// label names a place in the code, to be jumped to.
type label int

// assembler collects the instructions of a block. At the end it leaves out
// instructions that cannot be reached, because the kernel refuses them.
type assembler struct {
	ins    []asm.Instruction
	jumps  map[int]label // index of a jump: where it goes
	places []int         // label: index of the instruction there, -1 before it is placed

	deferred []func() // code away from the common path
	used     int      // bytes of the stack
	err      error    // the first one
}

func newAssembler() *assembler { return &assembler{jumps: make(map[int]label)} }

func (a *assembler) emit(ins ...asm.Instruction) { a.ins = append(a.ins, ins...) }

func (a *assembler) label() label {
	a.places = append(a.places, -1)
	return label(len(a.places) - 1)
}

// place puts a label in front of the next instruction.
func (a *assembler) place(l label) { a.places[l] = len(a.ins) }

func (a *assembler) jumpTo(ins asm.Instruction, to label) {
	a.jumps[len(a.ins)] = to
	a.ins = append(a.ins, ins)
}

// jump goes to a label always.
func (a *assembler) jump(to label) {
	a.jumpTo(asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)}, to)
}

// jumpIf compares a register with a register.
func (a *assembler) jumpIf(op asm.JumpOp, dst, src asm.Register, to label) {
	a.jumpTo(asm.Instruction{OpCode: op.Op(asm.RegSource), Dst: dst, Src: src}, to)
}

// jumpIfImm compares a register with 64 bits, which takes another register if
// they are not 32 bits extended by sign.
func (a *assembler) jumpIfImm(op asm.JumpOp, dst asm.Register, value uint64, scratch asm.Register, to label) {
	if fits32(value) {
		a.jumpTo(asm.Instruction{OpCode: op.Op(asm.ImmSource), Dst: dst, Constant: int64(value)}, to)
		return
	}
	a.emit(asm.LoadImm(scratch, int64(value), asm.DWord))
	a.jumpIf(op, dst, scratch, to)
}

// leave ends the program.
func (a *assembler) leave() {
	a.emit(asm.Mov.Imm(asm.R0, 0), asm.Return())
}

func (a *assembler) call(fn asm.BuiltinFunc) { a.emit(fn.Call()) }

// set loads 64 bits.
func (a *assembler) set(dst asm.Register, value uint64) {
	if fits32(value) {
		a.emit(asm.Mov.Imm(dst, int32(value)))
		return
	}
	a.emit(asm.LoadImm(dst, int64(value), asm.DWord))
}

// compareExchange sets a word of memory to src if it is R0, and R0 to what the
// word was.
//
// cilium/ebpf v0.22.0 encodes each atomic operation as an addition unless its
// immediate is given beside it.
func (a *assembler) compareExchange(base asm.Register, offset int16, src asm.Register) {
	ins := asm.CmpXchg.Mem(base, src, asm.DWord, offset)
	ins.Constant = bpfCmpXchg
	a.emit(ins)
}

// bpfCmpXchg is the immediate of an atomic compare and exchange (BPF_CMPXCHG |
// BPF_FETCH).
const bpfCmpXchg = 0xf1

// add adds 64 bits, which takes another register as in jumpIfImm.
func (a *assembler) add(dst asm.Register, value uint64, scratch asm.Register) {
	switch {
	case value == 0:
	case fits32(value):
		a.emit(asm.Add.Imm(dst, int32(value)))
	default:
		a.emit(asm.LoadImm(scratch, int64(value), asm.DWord), asm.Add.Reg(dst, scratch))
	}
}

// and masks by 64 bits.
func (a *assembler) and(dst asm.Register, mask uint64, scratch asm.Register) {
	if fits32(mask) {
		a.emit(asm.And.Imm(dst, int32(mask)))
		return
	}
	a.emit(asm.LoadImm(scratch, int64(mask), asm.DWord), asm.And.Reg(dst, scratch))
}

// addressOf sets a register to a place relative to another one.
func (a *assembler) addressOf(dst, base asm.Register, offset int) {
	a.emit(asm.Mov.Reg(dst, base))
	if offset != 0 {
		a.emit(asm.Add.Imm(dst, int32(offset)))
	}
}

// setField stores a constant of 64 bits.
func (a *assembler) setField(base asm.Register, offset int, value uint64, scratch asm.Register) {
	a.set(scratch, value)
	a.emit(asm.StoreMem(base, int16(offset), scratch, asm.DWord))
}

// alloc takes bytes of the stack, aligned to 8, and returns their offset from
// R10.
func (a *assembler) alloc(size int) int {
	a.used += (size + 7) &^ 7
	if a.used > stackSize {
		a.fail(errStack)
	}
	return -a.used
}

// scratch emits code whose part of the stack is free again after it.
func (a *assembler) scratch(emit func()) {
	used := a.used
	emit()
	a.used = used
}

func (a *assembler) fail(err error) {
	if a.err == nil {
		a.err = err
	}
}

// later emits code after everything else.
func (a *assembler) later(emit func()) { a.deferred = append(a.deferred, emit) }

// finish emits the deferred code, leaves out what cannot be reached, and
// resolves all jumps.
func (a *assembler) finish() (asm.Instructions, error) {
	for len(a.deferred) > 0 {
		emit := a.deferred[0]
		a.deferred = a.deferred[1:]
		emit()
	}
	if a.err != nil {
		return nil, a.err
	}
	a.invert()
	reached, err := a.reach()
	if err != nil {
		return nil, err
	}

	// at is where an instruction comes to stand, counted as the kernel does: in
	// 8 bytes, of which a load of 64 bits takes two. One that is left out has
	// the place of the next one.
	at := make([]int, len(a.ins)+1)
	for i := len(a.ins) - 1; i >= 0; i-- {
		// A jump to what follows it is none.
		if to, jump := a.jumps[i]; reached[i] && jump && isJa(&a.ins[i]) && a.next(reached, i+1) == a.next(reached, a.places[to]) {
			reached[i] = false
		}
	}
	for i := range a.ins {
		at[i+1] = at[i]
		if reached[i] {
			at[i+1] += int(a.ins[i].Size() / asm.InstructionSize)
		}
	}
	var kept asm.Instructions
	for i, ins := range a.ins {
		if !reached[i] {
			continue
		}
		if to, jump := a.jumps[i]; jump {
			distance := at[a.places[to]] - at[i+1]
			if distance != int(int16(distance)) {
				return nil, fmt.Errorf("generated code: a jump over %d instructions", distance)
			}
			ins.Offset = int16(distance)
		}
		kept = append(kept, ins)
	}
	return kept, nil
}

// invert has a conditional jump over a jump go where that goes, on the opposite
// condition.
func (a *assembler) invert() {
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

// next returns the first instruction from an index on that stays.
func (a *assembler) next(reached []bool, i int) int {
	for i < len(reached) && !reached[i] {
		i++
	}
	return i
}

// reach returns which instructions can be reached.
func (a *assembler) reach() ([]bool, error) {
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
					return nil, fmt.Errorf("generated code: jump %d leads to label %d, which is nowhere", i, to)
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

func fits32(value uint64) bool { return int64(value) == int64(int32(value)) }
