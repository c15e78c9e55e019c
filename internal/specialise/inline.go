// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"fmt"
	"math"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// callSite is a call of bpf_usdt_arg that asks for a certain argument.
type callSite struct {
	index    int // of the instruction
	argument int64
	place    int64 // of the result in the stack of the caller, if placed is set
	placed   bool

	code asm.Instructions // to put in the place of the call, none to leave it
}

// inline puts code in the place of the calls of bpf_usdt_arg that ask for a
// certain argument, where the code needs no register that a call leaves alone.
// A call takes longer than most reads.
//
// Neighbours in memory are read together unless apart is set, where it is known
// how much of the stack the function uses.
func (f *function) inline(r *reader, apart bool) error {
	depth, isKnown := f.stackDepth()
	targets := f.jumpTargets()
	sites := f.callSites(targets)
	for i := range sites {
		s := &sites[i]
		var err error
		if s.code, err = r.inlineArgument(s); err != nil {
			return err
		}
	}
	if isKnown && !apart && !r.pageIn {
		if err := f.merge(r, sites, targets, depth); err != nil {
			return err
		}
	}
	inlined := make(map[int]asm.Instructions)
	for _, s := range sites {
		if len(s.code) > 0 {
			s.code[0] = s.code[0].WithSource(f.ins[s.index].Source())
			inlined[s.index] = s.code
		}
	}
	if len(inlined) == 0 {
		return nil
	}
	return f.insert(inlined)
}

// callSites returns the calls of bpf_usdt_arg that ask for a certain argument.
func (f *function) callSites(targets map[int]bool) []callSite {
	var sites []callSite
	for i := 1; i < len(f.ins); i++ {
		if ins := &f.ins[i]; !ins.IsFunctionCall() || ins.Reference() != readOne {
			continue
		}
		if n, ok := f.constantBefore(i, number, targets); ok {
			site := callSite{index: i, argument: n}
			site.place, site.placed = f.frameAddressBefore(i, result, targets)
			sites = append(sites, site)
		}
	}
	return sites
}

// inlineArgument returns the code for a call, none where it cannot be inlined.
// There is one spec.
func (r *reader) inlineArgument(s *callSite) (asm.Instructions, error) {
	f, n := r.straight(), s.argument
	one := *r
	one.Assembler = f.Assembler
	switch {
	case n < 0 || n >= int64(len(f.Args)):
		one.fail(noSuchArgument)
	case !f.Readable(int(n)):
		one.fail(one.unavailable())
	case f.Args[n].Kind != argspec.Memory:
		f.Value(asm.R4, int(n))
		f.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord), asm.Mov.Imm(asm.R0, 0))
	default:
		arg := &f.Args[n]
		extend := arg.Signed && arg.Size < 8
		if r.pageIn || extend && !s.placed {
			return nil, nil
		}
		at := int64(0)
		if arg.Size < 8 {
			f.SetField(result, 0, 0, asm.R4)
			if r.kernel.BigEndian {
				at = int64(8 - arg.Size)
			}
		}
		f.Address(asm.R5, argcode.NewGroup(int(n), arg), arg.Displacement, asm.R4)
		f.AddressOf(asm.R1, result, int(at))
		f.Emit(asm.Mov.Imm(asm.R2, int32(arg.Size)), asm.Mov.Reg(asm.R3, asm.R5))
		// Where it fails, it has stored zeroes.
		f.Call(asm.FnProbeReadUser)
		if extend {
			f.Emit(asm.LoadMem(asm.R4, asm.R10, int16(s.place+at), argcode.SizeOf(arg.Size)))
			f.Extend(asm.R4, arg)
			f.Emit(asm.StoreMem(asm.R10, int16(s.place), asm.R4, asm.DWord))
		}
	}
	return f.Part()
}

// frameAddressBefore returns the place of the caller's stack that a register
// points to at an instruction, if that is certain.
func (f *function) frameAddressBefore(
	at int, register asm.Register, targets map[int]bool,
) (place int64, ok bool) {
	add, ok := f.lastChange(at, register, targets)
	if !ok || add == 0 {
		return 0, false
	}
	move, ok := f.lastChange(add, register, targets)
	if !ok {
		return 0, false
	}
	sum, copied := &f.ins[add], &f.ins[move]
	if sum.OpCode != asm.Add.Op(asm.ImmSource) || copied.OpCode != asm.Mov.Op(asm.RegSource) ||
		copied.Src != asm.R10 || copied.Offset != 0 {
		return 0, false
	}
	return sum.Constant, sum.Constant < 0 && sum.Constant >= -argcode.StackSize
}

// insert puts code in the place of instructions, given by their indices. The
// code must not jump.
func (f *function) insert(code map[int]asm.Instructions) error {
	jumps, err := f.jumps()
	if err != nil {
		return err
	}
	var ins asm.Instructions
	moved := make([]int, len(f.ins)) // where instructions are now
	for i := range f.ins {
		moved[i] = len(ins)
		if inserted := code[i]; inserted != nil {
			ins = append(ins, inserted...)
		} else {
			ins = append(ins, f.ins[i])
		}
	}
	at := make([]int, len(ins)) // as the kernel counts
	for i := 1; i < len(ins); i++ {
		at[i] = at[i-1] + int(ins[i-1].Size()/asm.InstructionSize)
	}
	for from, to := range jumps {
		jump := &ins[moved[from]]
		distance := at[moved[to]] - at[moved[from]] - 1
		switch {
		case isLongJump(jump):
			jump.Constant = int64(distance)
		case distance < math.MinInt16 || distance > math.MaxInt16:
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

// frame is a part of a function's stack that the function does not use, by
// offsets from R10.
type frame struct {
	context, result int // registers, while the helper is called
	status          int // the helper's answer
	block           int // where the group is
}

// merge has calls that follow each other read neighbours in memory together,
// where the first of them reads one. If that fails, each reads its own: what
// one of them cannot read does not matter to the others.
func (f *function) merge(r *reader, sites []callSite, targets map[int]bool, depth int) error {
	for len(sites) > 0 {
		n := 1
		for n < len(sites) && f.isStraight(sites[n-1].index, sites[n].index, targets) {
			n++
		}
		if err := f.mergeRun(r, sites[:n], depth); err != nil {
			return err
		}
		sites = sites[n:]
	}
	return nil
}

// isStraight reports whether the instructions between two others always run
// after the first one and before the second one, and call nothing.
func (f *function) isStraight(first, second int, targets map[int]bool) bool {
	for i := first + 1; i <= second; i++ {
		if targets[i] || i < second && f.ins[i].OpCode.Class().IsJump() {
			return false
		}
	}
	return true
}

func (f *function) mergeRun(r *reader, run []callSite, depth int) error {
	all := r.fetcher(r.specs[0].Args, context)
	var memory []int
	for _, s := range run {
		n := int(s.argument)
		if all.Readable(n) && all.Args[n].Kind == argspec.Memory && !all.Args[n].Address32 &&
			!slices.Contains(memory, n) {
			memory = append(memory, n)
		}
	}
	depth = (depth + 7) &^ 7
	used := depth + 2*8
	for _, g := range all.Groups(memory) {
		size := (8 + g.Lead() + g.Span() + 7) &^ 7
		if len(g.Args) == 1 || used+size > argcode.StackSize {
			continue
		}
		place := frame{context: -depth - 8, result: -depth - 16, status: -used - 8}
		used += size
		place.block = -used + g.Lead()

		first := true
		for i := range run {
			s := &run[i]
			if !slices.Contains(g.Args, int(s.argument)) {
				continue
			}
			apart := s.code
			if len(apart) == 0 {
				apart = asm.Instructions{f.ins[s.index]}
			}
			var err error
			if s.code, err = r.mergedArgument(&g, int(s.argument), place, first,
				apart); err != nil {
				return err
			}
			first = false
		}
	}
	return nil
}

// mergedArgument returns the code for a call that reads an argument of a group,
// and the group before that if it is the first one. apart reads the argument
// alone.
func (r *reader) mergedArgument(
	g *argcode.Group, n int, place frame, first bool, apart asm.Instructions,
) (asm.Instructions, error) {
	f, arg := r.straight(), &r.specs[0].Args[n]
	alone, done := f.Label(), f.Label()
	if first {
		f.Emit(asm.StoreMem(asm.R10, int16(place.context), context, asm.DWord),
			asm.StoreMem(asm.R10, int16(place.result), result, asm.DWord))
		f.Address(asm.R3, g, g.Low(), asm.R4)
		f.ReadUser(asm.FnProbeReadUser, asm.R10, place.block, g.Span())
		f.Emit(
			asm.StoreMem(asm.R10, int16(place.status), asm.R0, asm.DWord),
			asm.LoadMem(context, asm.R10, int16(place.context), asm.DWord),
			asm.LoadMem(result, asm.R10, int16(place.result), asm.DWord),
			asm.Mov.Imm(number, int32(n)),
		)
	}
	f.Emit(asm.LoadMem(asm.R4, asm.R10, int16(place.status), asm.DWord))
	f.JumpIfImm(asm.JNE, asm.R4, 0, asm.R5, alone)
	f.Emit(asm.LoadMem(asm.R4, asm.R10, int16(place.block+g.Distance(f.Args, n)),
		argcode.SizeOf(arg.Size)))
	f.Extend(asm.R4, arg)
	f.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord), asm.Mov.Imm(asm.R0, 0))
	f.Jump(done)
	f.Place(alone)
	f.Emit(apart...)
	f.Place(done)
	return f.Part()
}

// straight returns what emits code for the arguments of the only spec.
func (r *reader) straight() *argcode.Fetcher {
	one := *r
	one.Assembler = argcode.NewAssembler()
	return one.fetcher(r.specs[0].Args, context)
}
