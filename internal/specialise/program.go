// SPDX-License-Identifier: BSD-2-Clause

// Package specialise makes programs that read the arguments of a few sites fast
// from programs that read those of any site.
//
// A program reads arguments by calling a function of the header usdt.bpf.h,
// bpf_usdt_arg, which looks up where they are. In the result the body of this
// function is code for just these sites. All that the user wrote stays as it
// is. The function by which this module's BPF_USDT reads all arguments stays,
// too: it takes less than a tenth of a hit.
package specialise

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/bpfobject"
)

// readOne is the function that is replaced: bpf_usdt_arg(ctx, arg_num, res).
const readOne, parameters = "bpf_usdt_arg", 3

// maxArgs is how many arguments the header reads.
const maxArgs = 12

// MaxSpecs is the most specs that a program is made for. It finds the spec of a
// hit by a few comparisons. For more specs these take as long as the look-up
// that they replace. A program for each spec would save the 8 ns that the
// comparisons take of some 500 for a hit, but 16 programs and links took three
// times as long to attach, and twice as long to close.
const MaxSpecs = 16

// Program is a program of the user's.
type Program struct {
	// Instructions of the program and of the functions that it calls, as
	// cilium/ebpf puts them into a ProgramSpec.
	Instructions asm.Instructions
	Machine      elf.Machine // of the kernel
	BigEndian    bool
	Libbpf       bool // it was compiled with libbpf's header

	// Apart makes each call of bpf_usdt_arg read its argument alone. Otherwise
	// neighbours in memory are read together, which takes some of the stack.
	Apart bool
}

// For returns the instructions of the program for sites with these specs, whose
// IDs are their BPF cookies. The program must be attached to no other site.
func (p *Program) For(specs []Spec) (asm.Instructions, error) {
	if len(specs) > MaxSpecs {
		return nil, fmt.Errorf("its sites have more than %d specs, which a program cannot tell apart faster than by a look-up", MaxSpecs)
	}
	functions, err := p.functions()
	if err != nil {
		return nil, err
	}
	one := slices.IndexFunc(functions, func(f function) bool { return f.name == readOne })
	if one < 0 {
		return nil, errors.New("it does not call bpf_usdt_arg of usdt.bpf.h (BPF_USDT of this module is hardly slower than what would be made of it)")
	}
	f := &functions[one]
	if err := f.checkReader(); err != nil {
		return nil, fmt.Errorf("the function %s %w", f.name, err)
	}
	r := &reader{Assembler: argcode.NewAssembler(), Program: p, specs: slices.Clone(specs),
		pageIn: argcode.Calls(f.ins, asm.FnCopyFromUser)}
	slices.SortFunc(r.specs, func(a, b Spec) int { return cmp.Compare(a.ID, b.ID) })
	if len(specs) == 1 {
		for i := range functions {
			functions[i].setCookie(specs[0].ID)
			if err := functions[i].inline(r, p.Apart); err != nil {
				return nil, fmt.Errorf("%s: %w", functions[i].name, err)
			}
		}
	}
	r.eachSpec()
	body, err := r.Finish()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	// The metadata of a function is at its first instruction.
	old := &f.ins[0]
	body[0] = btf.WithFuncMetadata(body[0].WithSymbol(f.name).WithSource(old.Source()),
		btf.FuncMetadata(old))
	f.ins = body
	return join(functions), nil
}

// functions returns the program's functions, with copies of the instructions.
func (p *Program) functions() (functions []function, err error) {
	for i := range p.Instructions {
		if name := p.Instructions[i].Symbol(); name != "" {
			functions = append(functions, function{name: name})
		}
		if len(functions) == 0 {
			return nil, errors.New("its functions have no names")
		}
		last := &functions[len(functions)-1]
		last.ins = append(last.ins, p.Instructions[i])
	}
	return functions, nil
}

// function is one of the functions of a program.
type function struct {
	name string
	ins  asm.Instructions

	jumps   map[int]int  // where each jump leads to, by the indices of instructions
	targets map[int]bool // instructions that a jump leads to
}

// join puts the functions together that the first one calls, and those that
// they call.
func join(functions []function) (program asm.Instructions) {
	called := map[string]bool{functions[0].name: true}
	for before := 0; before < len(called); {
		before = len(called)
		for _, f := range functions {
			if called[f.name] {
				for _, name := range f.ins.FunctionReferences() {
					called[name] = true
				}
			}
		}
	}
	for _, f := range functions {
		if called[f.name] {
			program = append(program, f.ins...)
		}
	}
	return program
}

// checkReader returns an error unless a function is the header's function of
// that name.
func (f *function) checkReader() error {
	info := btf.FuncMetadata(&f.ins[0])
	if info == nil {
		return errors.New("has no BTF: compile the object with -g")
	}
	proto, ok := info.Type.(*btf.FuncProto)
	switch {
	case !ok || len(proto.Params) != parameters:
		return fmt.Errorf("has not the %d parameters of that in the header", parameters)
	case !bpfobject.IsHidden(&f.ins[0]):
		return errors.New("is static, so that the compiler may have changed its parameters")
	case !argcode.Calls(f.ins, asm.FnProbeReadUser) && !argcode.Calls(f.ins, asm.FnCopyFromUser):
		return errors.New("reads no memory")
	}
	return nil
}

// setCookie replaces the calls that get the BPF cookie by a constant.
func (f *function) setCookie(id uint32) {
	for i := range f.ins {
		ins := &f.ins[i]
		if ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnGetAttachCookie {
			*ins = asm.Mov.Imm32(asm.R0, int32(id)).WithMetadata(ins.Metadata)
		}
	}
}

// constantBefore returns the constant that a register has at an instruction, if
// that is certain.
func (f *function) constantBefore(at int, register asm.Register) (value int64, ok bool) {
	change, ok := f.lastChange(at, register)
	ins := &f.ins[change]
	isMove := ins.OpCode == asm.Mov.Op(asm.ImmSource) || ins.OpCode == asm.Mov.Op32(asm.ImmSource)
	return ins.Constant, ok && isMove && ins.Constant >= 0
}

// lastChange returns the last instruction before another one that changes a
// register, if it is always run before that one.
func (f *function) lastChange(at int, register asm.Register) (change int, ok bool) {
	for ; at > 0 && !f.targets[at]; at-- {
		ins := &f.ins[at-1]
		switch class := ins.OpCode.Class(); {
		case class.IsJump(), // a call changes the register
			class.IsStore() && ins.OpCode.Mode() == asm.AtomicMode: // it may change any
			return 0, false
		case !class.IsStore() && ins.Dst == register:
			return at - 1, true
		}
	}
	return 0, false
}

// findJumps finds where each jump leads to, and reports whether that is always
// within the function.
func (f *function) findJumps() bool {
	f.jumps, f.targets = make(map[int]int), make(map[int]bool)
	index := make(map[int]int) // by the place as the kernel counts
	iter := f.ins.Iterate()
	for iter.Next() {
		index[int(iter.Offset)] = iter.Index
	}
	iter = f.ins.Iterate()
	for iter.Next() {
		op := iter.Ins.OpCode
		if !op.Class().IsJump() || op.JumpOp() == asm.Call || op.JumpOp() == asm.Exit {
			continue
		}
		distance := int(iter.Ins.Offset)
		if isLongJump(iter.Ins) {
			distance = int(iter.Ins.Constant)
		}
		to, ok := index[int(iter.Offset)+1+distance]
		if !ok || iter.Ins.Reference() != "" {
			return false
		}
		f.jumps[iter.Index], f.targets[to] = to, true
	}
	return true
}
