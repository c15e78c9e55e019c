// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// noPointer stands for a value that is no pointer to the stack. Pointers have
// an offset from R10 that is not positive.
const noPointer = 1

// registers are the lowest offsets from R10 that registers may have.
type registers [11]int

// depths has the findings about a function.
type depths struct {
	lowest  int // offset from R10
	spilled int // the lowest pointer to the stack that is itself in the stack
}

// stackDepth returns how many bytes of the stack a function may use, at least
// as many as it does. It follows the pointers to the stack through the
// function's instructions, from R10 on. ok is false if it loses one: if the
// function adds a variable to one, as to index an array.
//
// The kernel's verifier finds the same depth, but reports it only in its log,
// whose form depends on the version.
func (f *function) stackDepth() (depth int, ok bool) {
	d := depths{spilled: noPointer}
	before := make([]*registers, len(f.ins)) // nil where it is not reached
	before[0] = &registers{}
	for i := range asm.R10 {
		before[0][i] = noPointer
	}
	for changed := true; changed; {
		changed = false
		for at, known := range before {
			if known == nil {
				continue
			}
			ins, after, spilled := &f.ins[at], *known, d.spilled
			if !d.step(ins, &after) {
				return 0, false
			}
			// A value that was loaded before may be that pointer.
			changed = changed || d.spilled != spilled
			var next []int
			to, jumps := f.jumps[at]
			if jumps {
				next = append(next, to)
			}
			if op := ins.OpCode.JumpOp(); op != asm.Exit && !(jumps && op == asm.Ja) {
				next = append(next, at+1)
			}
			for _, i := range next {
				switch {
				case i >= len(f.ins):
					return 0, false
				case before[i] == nil:
					before[i] = &registers{}
					*before[i], changed = after, true
				default: // what registers may be on another way
					old := *before[i]
					for r, offset := range after {
						before[i][r] = min(old[r], offset)
					}
					changed = changed || *before[i] != old
				}
			}
		}
	}
	return -d.lowest, true
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
		return base == noPointer || d.use(base+int(ins.Offset))
	case class.IsStore():
		base, isAtomic := r[ins.Dst], class == asm.StXClass && op.Mode() == asm.AtomicMode
		switch {
		case isAtomic:
			r[ins.Src], r[asm.R0] = noPointer, noPointer // one of them has the old value
		case class == asm.StXClass && r[ins.Src] != noPointer:
			if base == noPointer || op.Size() != asm.DWord {
				return false
			}
			d.spilled = min(d.spilled, r[ins.Src])
		}
		return base == noPointer || d.use(base+int(ins.Offset))
	}
	return false
}

func (d *depths) compute(ins *asm.Instruction, r *registers) bool {
	op, dst := ins.OpCode, &r[ins.Dst]
	source, constant := noPointer, int(ins.Constant)
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
	case op.ALUOp() == asm.Sub:
		constant = -constant
	case op.ALUOp() != asm.Add:
		return false
	}
	*dst = min(*dst+constant, 0)
	return d.use(*dst)
}

// use notes a place of the stack.
func (d *depths) use(offset int) bool {
	d.lowest = min(d.lowest, offset)
	return offset >= -argcode.StackSize
}
