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
	d := depths{spilled: noPointer}
	entry := registers{}
	for i := range entry {
		entry[i] = noPointer
	}
	entry[asm.R10] = 0
	before := make([]*registers, len(f.ins)) // nil where it is not reached
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
			for i, reached := range before {
				if reached != nil {
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

// noPointer stands for a value that is no pointer to the stack. Pointers have
// an offset from R10 that is not positive.
const noPointer = 1

// registers are the lowest offsets from R10 that registers may have.
type registers [11]int

// join adds what registers may be on another way. It reports whether that is
// new.
func (r *registers) join(other *registers) bool {
	before := *r
	for i, offset := range other {
		r[i] = min(r[i], offset)
	}
	return *r != before
}

// depths has the findings about a function.
type depths struct {
	lowest  int // offset from R10
	spilled int // the lowest pointer to the stack that is itself in the stack
}

// step does to registers what an instruction does. It reports whether it could.
func (d *depths) step(ins *asm.Instruction, r *registers) bool {
	op := ins.OpCode
	class := op.Class()
	switch {
	case class.IsALU():
		return d.compute(ins, r)
	case class.IsJump():
		if op.JumpOp() == asm.Call {
			for i := asm.R0; i <= asm.R5; i++ {
				r[i] = noPointer
			}
		}
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
		return d.access(base, ins)
	case class == asm.StXClass && op.Mode() == asm.AtomicMode:
		base := r[ins.Dst]
		r[ins.Src], r[asm.R0] = noPointer, noPointer // one of them has the old value
		return d.access(base, ins)
	case class.IsStore():
		base := r[ins.Dst]
		if class == asm.StXClass && r[ins.Src] != noPointer {
			if base == noPointer || op.Size() != asm.DWord {
				return false
			}
			d.spilled = min(d.spilled, r[ins.Src])
		}
		return d.access(base, ins)
	}
	return false
}

func (d *depths) compute(ins *asm.Instruction, r *registers) bool {
	op, dst := ins.OpCode, &r[ins.Dst]
	source := noPointer
	if op.Source() == asm.RegSource {
		source = r[ins.Src]
	}
	wide := op.Class() == asm.ALU64Class
	switch {
	case op.ALUOp() == asm.Mov:
		*dst = source
		return source == noPointer || wide && ins.Offset == 0
	case source != noPointer:
		return false
	case *dst == noPointer:
		return true
	case !wide || op.Source() == asm.RegSource:
		return false
	case op.ALUOp() == asm.Add:
		*dst = min(*dst+int(ins.Constant), 0)
	case op.ALUOp() == asm.Sub:
		*dst = min(*dst-int(ins.Constant), 0)
	default:
		return false
	}
	return d.use(*dst)
}

// access notes the place that an instruction loads or stores, if it is in the
// stack.
func (d *depths) access(base int, ins *asm.Instruction) bool {
	return base == noPointer || d.use(base+int(ins.Offset))
}

func (d *depths) use(offset int) bool {
	d.lowest = min(d.lowest, offset)
	return offset >= -argcode.StackSize
}
