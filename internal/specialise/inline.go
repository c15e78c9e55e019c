// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// callSite is a call of bpf_usdt_arg that asks for a certain argument.
type callSite struct {
	index    int // of the instruction
	argument int
	place    int64 // of the result in the stack of the caller, if placed is set
	placed   bool

	code asm.Instructions // to put in the place of the call, none to leave it
}

// inline replaces calls of bpf_usdt_arg that ask for a certain argument by
// code, if that code uses only registers that a call may change. A call takes
// longer than most reads.
//
// Neighbours in memory are read together if it is known how much of the stack
// the function uses, unless apart is set.
func (f *function) inline(r *reader, apart bool) (err error) {
	if !f.findJumps() {
		return nil // a jump may lead to any instruction
	}
	var sites []callSite
	for i := range f.ins {
		if ins := &f.ins[i]; !ins.IsFunctionCall() || ins.Reference() != readOne {
			continue
		}
		n, ok := f.constantBefore(i, number)
		if !ok {
			continue
		}
		s := callSite{index: i, argument: int(n)}
		s.place, s.placed = f.frameAddressBefore(i, result)
		if s.code, err = r.inlineArgument(&s); err != nil {
			return err
		}
		sites = append(sites, s)
	}
	if depth, isKnown := f.stackDepth(); isKnown && !apart && !r.pageIn {
		if err := f.merge(r, sites, (depth+7)&^7); err != nil {
			return err
		}
	}
	return f.insert(sites)
}

// inlineArgument returns the code for a call, none where it cannot be inlined.
func (r *reader) inlineArgument(s *callSite) (asm.Instructions, error) {
	one, f := r.straight()
	n := s.argument
	switch {
	case n >= len(f.Args):
		one.fail(noSuchArgument)
	case !f.Readable(n):
		one.fail(one.unavailable())
	case f.Args[n].Kind != argspec.Memory:
		f.Value(asm.R4, n)
		f.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord), asm.Mov.Imm(asm.R0, 0))
	default:
		if r.pageIn || isExtended(&f.Args[n]) && !s.placed {
			return nil, nil
		}
		one.readMemory(f, n, result, argcode.At{Base: asm.R10, Offset: int(s.place)})
	}
	return f.Part()
}

// frameAddressBefore returns the place in the caller's stack that a register
// points to at an instruction, if that is certain.
func (f *function) frameAddressBefore(at int, register asm.Register) (place int64, ok bool) {
	add, changed := f.lastChange(at, register)
	move, moved := f.lastChange(add, register)
	if !changed || !moved {
		return 0, false
	}
	sum, copied := &f.ins[add], &f.ins[move]
	isAddress := sum.OpCode == asm.Add.Op(asm.ImmSource) &&
		copied.OpCode == asm.Mov.Op(asm.RegSource) && copied.Src == asm.R10 && copied.Offset == 0
	return sum.Constant, isAddress && sum.Constant < 0 && sum.Constant >= -argcode.StackSize
}

// insert puts the code of the calls in their place. It must not jump.
func (f *function) insert(sites []callSite) error {
	sites = slices.DeleteFunc(sites, func(s callSite) bool { return len(s.code) == 0 })
	if len(sites) == 0 {
		return nil
	}
	var ins asm.Instructions
	moved := make([]int, len(f.ins)) // where instructions are now
	at := make([]int, len(f.ins)+1)  // the same as the kernel counts
	for i := range f.ins {
		code := f.ins[i : i+1]
		if len(sites) > 0 && sites[0].index == i {
			code = sites[0].code
			code[0] = code[0].WithSource(f.ins[i].Source())
			sites = sites[1:]
		}
		moved[i] = len(ins)
		at[i+1] = at[i] + int(code.Size()/asm.InstructionSize)
		ins = append(ins, code...)
	}
	for from, to := range f.jumps {
		jump, distance := &ins[moved[from]], at[to]-at[from]-1
		switch {
		case isLongJump(jump):
			jump.Constant = int64(distance)
		case distance != int(int16(distance)):
			return fmt.Errorf("a jump over %d instructions", distance)
		default:
			jump.Offset = int16(distance)
		}
	}
	f.ins = ins
	return nil
}

// isLongJump reports whether an instruction is a jump whose distance has 32
// bits.
func isLongJump(ins *asm.Instruction) bool {
	return ins.OpCode.Class() == asm.Jump32Class && ins.OpCode.JumpOp() == asm.Ja
}

// merge has calls that follow each other read neighbours in memory together,
// where the first of them reads one. If that fails, each reads its own: what
// one of them cannot read does not matter to the others. The room that this
// needs lies below the stack that the function uses, depth bytes.
func (f *function) merge(r *reader, sites []callSite, depth int) error {
	for len(sites) > 0 {
		n := 1
		for n < len(sites) && f.isStraight(sites[n-1].index, sites[n].index) {
			n++
		}
		run := sites[:n]
		sites = sites[n:]

		_, all := r.straight()
		var memory []int
		for _, s := range run {
			if n := s.argument; all.Readable(n) && all.Args[n].Kind == argspec.Memory &&
				!all.Args[n].Address32 && !slices.Contains(memory, n) {
				memory = append(memory, n)
			}
		}
		used := depth + 2*8 // for the parameters
		for _, g := range all.Groups(memory) {
			size := (8 + g.Lead() + g.Span() + 7) &^ 7
			if len(g.Args) == 1 || used+size > argcode.StackSize {
				continue
			}
			m := merged{Group: g, parameters: -depth, status: -used - 8}
			used += size
			m.block = -used + g.Lead()
			for i := range run {
				s := &run[i]
				if !slices.Contains(g.Args, s.argument) {
					continue
				}
				if len(s.code) == 0 {
					s.code = asm.Instructions{f.ins[s.index]}
				}
				var err error
				if s.code, err = r.mergedArgument(&m, s); err != nil {
					return err
				}
				m.isRead = true
			}
		}
	}
	return nil
}

// isStraight reports whether the instructions between two others always run
// after the first one and before the second one, and call nothing.
func (f *function) isStraight(first, second int) bool {
	for i := first + 1; i <= second; i++ {
		if f.targets[i] || i < second && f.ins[i].OpCode.Class().IsJump() {
			return false
		}
	}
	return true
}

// merged is a group that calls read together, with places of the stack.
type merged struct {
	argcode.Group
	parameters int // two words end here, for registers while the helper is called
	status     int // the helper's answer
	block      int // where the group is
	isRead     bool
}

// mergedArgument returns the code for a call that reads an argument of a group,
// and the group before that if it is the first one. The code that the call has
// reads the argument alone.
func (r *reader) mergedArgument(m *merged, s *callSite) (asm.Instructions, error) {
	_, f := r.straight()
	arg := &f.Args[s.argument]
	alone, done := f.Label(), f.Label()
	toStack := func(at int, register asm.Register) asm.Instruction {
		return asm.StoreMem(asm.R10, int16(at), register, asm.DWord)
	}
	fromStack := func(register asm.Register, at, size int) asm.Instruction {
		return asm.LoadMem(register, asm.R10, int16(at), argcode.SizeOf(size))
	}
	if !m.isRead {
		first := &f.Args[m.Args[0]]
		f.Emit(toStack(m.parameters-8, context), toStack(m.parameters-16, result))
		f.Address(asm.R3, first, first.Displacement, asm.R4)
		f.Call(asm.FnProbeReadUser, argcode.At{Base: asm.R10, Offset: m.block}, m.Span())
		f.Emit(toStack(m.status, asm.R0), fromStack(context, m.parameters-8, 8),
			fromStack(result, m.parameters-16, 8), asm.Mov.Imm(number, int32(s.argument)))
	}
	f.Emit(fromStack(asm.R4, m.status, 8))
	f.JumpIfImm(asm.JNE, asm.R4, 0, asm.R5, alone)
	f.Emit(fromStack(asm.R4, m.block+m.Distance(f.Args, s.argument), arg.Size))
	f.Extend(asm.R4, arg)
	f.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord), asm.Mov.Imm(asm.R0, 0))
	f.Jump(done)
	f.Place(alone)
	f.Emit(s.code...)
	f.Place(done)
	return f.Part()
}

// straight returns a reader with an Assembler of its own, and its Fetcher for
// the only spec.
func (r *reader) straight() (*reader, *argcode.Fetcher) {
	one := *r
	one.Assembler = argcode.NewAssembler()
	return &one, one.fetcher(r.specs[0].Args, context)
}
