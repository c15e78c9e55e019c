// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"github.com/cilium/ebpf/asm"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
)

// Spec is one of the specs that a program is made for.
type Spec struct {
	ID   uint32        // the BPF cookie of its sites
	Args []argspec.Arg // the first twelve count
}

// reader generates the body of a function that reads arguments.
type reader struct {
	*argcode.Assembler
	*Program
	pageIn bool // the function waits for memory that is not there
	specs  []Spec
}

// The registers of the parameters of bpf_usdt_arg.
const context, number, result = asm.R1, asm.R2, asm.R3

// The code keeps them over a helper call in these registers. It need not save
// these first: the kernel does that for a function that is called.
const keptContext, keptResult, keptNumber = asm.R6, asm.R7, asm.R8

// noSuchArgument is the error of reading an argument that the site lacks.
const noSuchArgument = unix.ENOENT

// fetcher returns a Fetcher for the arguments of a spec.
func (r *reader) fetcher(args []argspec.Arg, context asm.Register) *argcode.Fetcher {
	return &argcode.Fetcher{Assembler: r.Assembler, Machine: r.Machine, BigEndian: r.BigEndian,
		Args: args[:min(len(args), maxArgs)], Context: context}
}

// unavailable returns the error of reading an argument that cannot be fetched.
func (r *reader) unavailable() unix.Errno {
	if r.Libbpf {
		return unix.EINVAL
	}
	return unix.EOPNOTSUPP
}

// eachSpec emits the choice between the specs by the BPF cookie, and the code
// for each. That code finds the function's parameters in their registers.
func (r *reader) eachSpec() {
	if len(r.specs) == 1 {
		r.argumentOf(&r.specs[0])
		return
	}
	r.Emit(asm.Mov.Reg(keptContext, context), asm.Mov.Reg(keptNumber, number),
		asm.Mov.Reg(keptResult, result))
	r.Call(asm.FnGetAttachCookie)
	r.Emit(asm.Mov.Reg(context, keptContext), asm.Mov.Reg(number, keptNumber),
		asm.Mov.Reg(result, keptResult))
	ids := make([]uint64, len(r.specs))
	for i := range r.specs {
		ids[i] = uint64(r.specs[i].ID)
	}
	other := r.Label()
	r.Search(asm.R0, ids, asm.R5, func(i int) {
		r.JumpIfImm(asm.JNE, asm.R0, ids[i], asm.R5, other)
		r.argumentOf(&r.specs[i])
	})
	r.Place(other) // never: the program is attached to no other site
	r.failed(unix.ESRCH)
}

func (r *reader) argumentOf(spec *Spec) {
	args := r.fetcher(spec.Args, context).Args
	numbers := make([]uint64, len(args)+1)
	for i := range numbers {
		numbers[i] = uint64(i)
	}
	r.Search(number, numbers, asm.R5, func(i int) {
		switch {
		case i == len(args): // or above
			r.failed(noSuchArgument)
		case !argcode.Readable(&args[i], r.Machine):
			r.failed(r.unavailable())
		case args[i].Kind == argspec.Memory:
			r.Emit(asm.Mov.Reg(keptContext, context), asm.Mov.Reg(keptResult, result))
			r.readMemory(r.fetcher(args, keptContext), i, keptResult, argcode.At{Base: keptResult})
			r.Emit(asm.Return())
		default:
			r.fetcher(args, context).Value(asm.R4, i)
			r.Emit(asm.StoreMem(result, 0, asm.R4, asm.DWord))
			r.Leave()
		}
	})
}

// fail emits the result of bpf_usdt_arg for an error.
func (r *reader) fail(err unix.Errno) {
	r.SetField(result, 0, 0, asm.R4)
	r.Emit(asm.Mov.Imm(asm.R0, -int32(err)))
}

// failed emits the end of bpf_usdt_arg with an error.
func (r *reader) failed(err unix.Errno) {
	r.fail(err)
	r.Emit(asm.Return())
}

// readMemory emits the value of an argument in memory to the word at a
// register, and leaves the answer of the helper in R0. Where that fails, the
// value is 0. kept is the same word by a register that is kept over calls,
// which only an argument with a sign needs. The context must be in such a
// register if the function waits for memory.
func (r *reader) readMemory(f *argcode.Fetcher, index int, word asm.Register, kept argcode.At) {
	arg, first := &f.Args[index], 0
	if arg.Size < 8 {
		r.SetField(word, 0, 0, asm.R4)
		if r.BigEndian {
			first = 8 - arg.Size
		}
	}
	read := func(helper asm.BuiltinFunc) {
		f.Address(asm.R5, arg, arg.Displacement, asm.R4)
		f.Call(helper, argcode.At{Base: word, Offset: first}, arg.Size, asm.R5)
	}
	read(asm.FnProbeReadUser) // stores zeroes where it fails
	if r.pageIn {
		there := r.Label()
		r.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, there)
		read(asm.FnCopyFromUser)
		r.Place(there)
	}
	if isExtended(arg) {
		r.Emit(asm.LoadMem(asm.R4, kept.Base, int16(kept.Offset+first), argcode.SizeOf(arg.Size)))
		f.Extend(asm.R4, arg)
		r.Emit(asm.StoreMem(kept.Base, int16(kept.Offset), asm.R4, asm.DWord))
	}
}

// isExtended reports whether the value of an argument in memory is not its
// bytes with zeros before them.
func isExtended(arg *argspec.Arg) bool { return arg.Signed && arg.Size < 8 }
