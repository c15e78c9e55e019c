// SPDX-License-Identifier: BSD-2-Clause

// Package specialise makes programs that read the arguments of a few sites fast
// from programs that read those of any site.
//
// A program reads arguments by calling functions of the header usdt.bpf.h,
// which look up where they are. In the result the bodies of these functions are
// code for just these sites. All that the user wrote stays as it is.
package specialise

import (
	"cmp"
	"debug/elf"
	"errors"
	"fmt"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/bpfobject"
)

// The functions that are replaced, and their parameters.
const (
	readOne  = "bpf_usdt_arg"         // (ctx, arg_num, res)
	readMany = "__bpf_usdt_read_many" // (ctx, reading, count), of this module's header

	parameters = 3
)

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
	specs = slices.Clone(specs)
	slices.SortFunc(specs, func(a, b Spec) int { return cmp.Compare(a.ID, b.ID) })
	if len(specs) == 1 {
		for i := range functions {
			functions[i].setCookie(specs[0].ID)
		}
		if one := find(functions, readOne); one >= 0 {
			r := p.reader(&functions[one], specs)
			for i := range functions {
				if err := functions[i].inline(r, p.Apart); err != nil {
					return nil, fmt.Errorf("%s: %w", functions[i].name, err)
				}
			}
		}
	}
	for i := range functions {
		f := &functions[i]
		r := p.reader(f, specs)
		switch f.name {
		case readOne:
			r.eachSpec(r.argumentOf, func() { r.failed(unix.ESRCH) })
		case readMany:
			arguments := constantCount(functions)
			r.eachSpec(func(spec *Spec) { r.many(spec, arguments) },
				func() { r.many(&Spec{}, arguments) })
		default:
			continue
		}
		body, err := r.Finish()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		// The metadata of a function is at its first instruction.
		old := &f.ins[0]
		body[0] = btf.WithFuncMetadata(body[0].WithSymbol(f.name).WithSource(old.Source()),
			btf.FuncMetadata(old))
		f.ins = body
	}
	return join(functions), nil
}

func (p *Program) reader(f *function, specs []Spec) *reader {
	return &reader{Assembler: argcode.NewAssembler(), Program: p, specs: specs,
		pageIn: argcode.Calls(f.ins, asm.FnCopyFromUser)}
}

// functions returns the program's functions, with copies of the instructions.
// It returns an error unless one of them is a function of the header that reads
// arguments.
func (p *Program) functions() (functions []function, err error) {
	found := false
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
	for _, f := range functions {
		if f.name == readOne || f.name == readMany {
			if err := f.checkReader(); err != nil {
				return nil, fmt.Errorf("the function %s %w", f.name, err)
			}
			found = true
		}
	}
	if !found {
		return nil, errors.New("it calls no function of usdt.bpf.h that reads arguments")
	}
	return functions, nil
}

// function is one of the functions of a program.
type function struct {
	name string
	ins  asm.Instructions
}

// find returns the index of the function of a name, or -1.
func find(functions []function, name string) int {
	return slices.IndexFunc(functions, func(f function) bool { return f.name == name })
}

// join puts the functions together that the first one calls, and those that
// they call.
func join(functions []function) (program asm.Instructions) {
	called := make(map[string]bool)
	for todo := []string{functions[0].name}; len(todo) > 0; todo = todo[1:] {
		if i := find(functions, todo[0]); i >= 0 && !called[todo[0]] {
			called[todo[0]] = true
			todo = append(todo, functions[i].ins.FunctionReferences()...)
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

// constantCount returns how many arguments all calls of __bpf_usdt_read_many
// ask for, 0 if they differ or it is not certain.
func constantCount(functions []function) int {
	common := 0
	for i := range functions {
		f := &functions[i]
		targets := f.jumpTargets()
		for at := range f.ins {
			if !f.ins[at].IsFunctionCall() || f.ins[at].Reference() != readMany {
				continue
			}
			n, ok := f.constantBefore(at, count, targets)
			if !ok || n < 1 || n > maxArgs || common != 0 && common != int(n) {
				return 0
			}
			common = int(n)
		}
	}
	return common
}

// constantBefore returns the constant that a register has at an instruction, if
// that is certain.
func (f *function) constantBefore(
	at int, register asm.Register, targets map[int]bool,
) (value int64, ok bool) {
	change, ok := f.lastChange(at, register, targets)
	ins := &f.ins[change]
	isMove := ins.OpCode == asm.Mov.Op(asm.ImmSource) || ins.OpCode == asm.Mov.Op32(asm.ImmSource)
	return ins.Constant, ok && isMove && ins.Constant >= 0
}

// lastChange returns the last instruction before another one that changes a
// register, if it is always run before that one.
func (f *function) lastChange(
	at int, register asm.Register, targets map[int]bool,
) (change int, ok bool) {
	for ; at > 0 && !targets[at]; at-- {
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

// jumpTargets returns the indices of the instructions that a jump leads to.
func (f *function) jumpTargets() map[int]bool {
	jumps, err := f.jumps()
	targets := make(map[int]bool)
	for _, to := range jumps {
		targets[to] = true
	}
	if err != nil {
		// A jump may lead to any of them.
		for i := range f.ins {
			targets[i] = true
		}
	}
	return targets
}

// jumps returns where each jump leads to, by the indices of instructions.
func (f *function) jumps() (map[int]int, error) {
	index := make(map[int]int) // by the place as the kernel counts
	iter := f.ins.Iterate()
	for iter.Next() {
		index[int(iter.Offset)] = iter.Index
	}
	jumps := make(map[int]int)
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
			return jumps, errors.New("a jump leads out of the function")
		}
		jumps[iter.Index] = to
	}
	return jumps, nil
}
