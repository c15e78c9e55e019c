// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// stackDepth returns how many bytes of the stack a function may use, at least
// as many as it does. It follows the pointers to the stack through the
// function's instructions, from R10 on. ok is false where it loses one: if a
// function adds to one what is not a constant, as for an array that is indexed.
//
// The kernel's verifier finds out the same, and says it in a text that other
// versions write in another form.
func (f *function) stackDepth() (depth int, ok bool) {
	jumps, err := f.jumps()
	if err != nil {
		return 0, false
	}
	d := depths{function: f, spilled: noPointer}
	entry := registers{}
	for i := range entry {
		entry[i] = noPointer
	}
	entry[asm.R10] = 0
	before := make([]*registers, len(f.ins)) // nil for what is not reached
	before[0] = &entry
	for todo := []int{0}; len(todo) > 0; {
		at := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		ins, after, spilled := &f.ins[at], *before[at], d.spilled
		if !d.step(ins, &after) {
			return 0, false
		}
		if d.spilled != spilled { // what was loaded meanwhile may be that pointer
			todo = todo[:0]
			for i := range before {
				if before[i] != nil {
					todo = append(todo, i)
				}
			}
		}
		next := []int{at + 1}
		if op := ins.OpCode; op.Class().IsJump() {
			to, jumps := jumps[at]
			switch {
			case op.JumpOp() == asm.Exit:
				next = nil
			case jumps && op.JumpOp() == asm.Ja:
				next = []int{to}
			case jumps:
				next = append(next, to)
			}
		}
		for _, i := range next {
			switch {
			case i >= len(f.ins):
				return 0, false
			case before[i] == nil:
				known := after
				before[i] = &known
				todo = append(todo, i)
			case before[i].join(&after) && !slices.Contains(todo, i):
				todo = append(todo, i)
			}
		}
	}
	return -d.lowest, true
}

// noPointer stands for what is no pointer to the stack. Those that are have an
// offset from R10 that is not positive.
const noPointer = 1

// registers are the lowest offsets from R10 that registers may have.
type registers [11]int

// join adds what registers may be on another way. It reports whether that is
// new.
func (r *registers) join(other *registers) (changed bool) {
	for i, offset := range other {
		if lower(r[i], offset) != r[i] {
			r[i], changed = offset, true
		}
	}
	return changed
}

func lower(a, b int) int {
	if a == noPointer || b != noPointer && b < a {
		return b
	}
	return a
}

// depths is what has been found out of a function.
type depths struct {
	*function
	lowest  int // offset from R10
	spilled int // the lowest pointer to the stack that is itself in the stack
}

// step does to registers what an instruction does. It reports whether it could.
func (d *depths) step(ins *asm.Instruction, r *registers) bool {
	op := ins.OpCode
	switch class := op.Class(); {
	case class.IsALU():
		return d.compute(ins, r)
	case ins.IsFunctionCall() || ins.IsBuiltinCall() || ins.IsKfuncCall():
		for i := asm.R0; i <= asm.R5; i++ {
			r[i] = noPointer
		}
		return true
	case class.IsJump():
		return true
	case class == asm.LdClass && op.IsDWordLoad():
		r[ins.Dst] = noPointer
		return true
	case class == asm.LdXClass:
		base := r[ins.Src]
		r[ins.Dst] = noPointer
		if base != noPointer && op.Size() == asm.DWord {
			r[ins.Dst] = d.spilled
		}
		return base == noPointer || d.use(base+int(ins.Offset))
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		base := r[ins.Dst]
		r[ins.Src], r[asm.R0] = noPointer, noPointer // one of them has the old value
		return base == noPointer || d.use(base+int(ins.Offset))
	case class.IsStore():
		base := r[ins.Dst]
		if class == asm.StXClass && r[ins.Src] != noPointer {
			if base == noPointer || op.Size() != asm.DWord {
				return false
			}
			d.spilled = lower(d.spilled, r[ins.Src])
		}
		return base == noPointer || d.use(base+int(ins.Offset))
	default:
		return false
	}
}

func (d *depths) compute(ins *asm.Instruction, r *registers) bool {
	op := ins.OpCode
	byRegister := op.Source() == asm.RegSource
	wide := op.Class() == asm.ALU64Class
	switch {
	case op.ALUOp() == asm.Mov && byRegister:
		if r[ins.Src] != noPointer && (!wide || ins.Offset != 0) {
			return false
		}
		r[ins.Dst] = r[ins.Src]
		return true
	case op.ALUOp() == asm.Mov:
		r[ins.Dst] = noPointer
		return true
	case byRegister && r[ins.Src] != noPointer:
		return false
	case r[ins.Dst] == noPointer:
		return true
	case wide && !byRegister && op.ALUOp() == asm.Add:
		r[ins.Dst] = min(r[ins.Dst]+int(ins.Constant), 0)
	case wide && !byRegister && op.ALUOp() == asm.Sub:
		r[ins.Dst] = min(r[ins.Dst]-int(ins.Constant), 0)
	default:
		return false
	}
	return d.use(r[ins.Dst])
}

// use notes that a place in the stack is used.
func (d *depths) use(offset int) bool {
	d.lowest = min(d.lowest, offset)
	return offset >= -argcode.StackSize
}
