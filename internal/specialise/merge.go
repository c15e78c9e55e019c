// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// frame is a part of a function's stack that the function does not use, by
// offsets from R10.
type frame struct {
	context, result int // what is kept while the helper is called
	status          int // what the helper answered
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

// isStraight reports whether what is between two instructions always runs
// before the second one, and after the first one, and calls nothing.
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
	straight := func(emit func(f *argcode.Fetcher)) (asm.Instructions, error) {
		one := *r
		one.Assembler = argcode.NewAssembler()
		emit(one.fetcher(r.specs[0].Args, context))
		return one.Straight()
	}
	read, err := straight(func(f *argcode.Fetcher) {
		if !first {
			return
		}
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
	})
	if err != nil {
		return nil, err
	}
	together, err := straight(func(f *argcode.Fetcher) {
		arg := &f.Args[n]
		f.Emit(asm.LoadMem(asm.R4, asm.R10, int16(place.block+g.Distance(f.Args, n)),
			argcode.SizeOf(arg.Size)))
		f.Extend(asm.R4, arg)
		f.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord), asm.Mov.Imm(asm.R0, 0))
	})
	if err != nil {
		return nil, err
	}
	code := append(read, asm.LoadMem(asm.R4, asm.R10, int16(place.status), asm.DWord))
	code = append(code, asm.Instruction{OpCode: asm.JNE.Op(asm.ImmSource), Dst: asm.R4,
		Offset: 1 + slots(together)})
	code = append(code, together...)
	code = append(code, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: slots(apart)})
	return append(code, apart...), nil
}

// slots returns the length of code as the kernel counts it.
func slots(code asm.Instructions) int16 { return int16(code.Size() / asm.InstructionSize) }
