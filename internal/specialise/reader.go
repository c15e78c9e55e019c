// SPDX-License-Identifier: BSD-2-Clause

package specialise

import (
	"cmp"
	"slices"

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

// The registers of the parameters of the functions in the header, and offsets.
const (
	context = asm.R1 // the parameter of both

	// bpf_usdt_arg(ctx, arg_num, res)
	number = asm.R2
	result = asm.R3

	// __bpf_usdt_read_many(ctx, reading, count)
	reading = asm.R2
	count   = asm.R3

	offsetWords = 16 // of struct __bpf_usdt_reading
)

// The code keeps values over a helper call in these registers. It need not save
// them first: the kernel does that for a function that is called.
const (
	keptContext = asm.R6
	keptResult  = asm.R7 // or reading
	keptNumber  = asm.R8 // or count
)

// noSuchArgument is the error of reading an argument that the site lacks.
const noSuchArgument = unix.ENOENT

// fetcher returns a Fetcher for the arguments of a spec.
func (r *reader) fetcher(args []argspec.Arg, context asm.Register) *argcode.Fetcher {
	return &argcode.Fetcher{
		Assembler: r.Assembler, Machine: r.Machine, BigEndian: r.BigEndian,
		PageIn: r.pageIn, Args: args[:min(len(args), maxArgs)], Context: context,
	}
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
func (r *reader) eachSpec(emit func(spec *Spec), none func()) {
	if len(r.specs) == 1 {
		emit(&r.specs[0])
		return
	}
	r.Emit(asm.Mov.Reg(keptContext, asm.R1), asm.Mov.Reg(keptResult, asm.R2),
		asm.Mov.Reg(keptNumber, asm.R3))
	r.Call(asm.FnGetAttachCookie)
	r.Emit(asm.Mov.Reg(asm.R1, keptContext), asm.Mov.Reg(asm.R2, keptResult),
		asm.Mov.Reg(asm.R3, keptNumber))
	ids := make([]uint64, len(r.specs))
	for i := range r.specs {
		ids[i] = uint64(r.specs[i].ID)
	}
	other := r.Label()
	r.Search(asm.R0, ids, asm.R5, func(i int) {
		r.JumpIfImm(asm.JNE, asm.R0, ids[i], asm.R5, other)
		emit(&r.specs[i])
	})
	r.Place(other) // never: the program is attached to no other site
	none()
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
			f := r.fetcher(args, keptContext)
			r.readInPlace(f, i, keptResult, 0, func() {
				// R0 is the error of the helper.
				r.SetField(keptResult, 0, 0, asm.R4)
				r.Emit(asm.Return())
			})
			r.Leave()
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

// narrow clears the word that an argument is read to if the argument is
// narrower, and returns where its bytes belong.
func (r *reader) narrow(base asm.Register, word int, arg *argspec.Arg) int {
	if arg.Size < 8 {
		r.SetField(base, word, 0, asm.R4)
		if r.BigEndian {
			return word + 8 - arg.Size
		}
	}
	return word
}

// readInPlace emits the value of an argument in memory to a word at an offset
// from a register that is kept over calls.
func (r *reader) readInPlace(
	f *argcode.Fetcher, index int, base asm.Register, offset int, failed func(),
) {
	arg := &f.Args[index]
	at := r.narrow(base, offset, arg)
	group := argcode.NewGroup(index, arg)
	apart, read := r.Label(), r.Label()
	f.ReadTogether(&group, base, at, apart)
	r.Place(read)
	if arg.Signed && arg.Size < 8 {
		r.Emit(asm.LoadMem(asm.R4, base, int16(at), argcode.SizeOf(arg.Size)))
		f.Extend(asm.R4, arg)
		r.Emit(asm.StoreMem(base, int16(offset), asm.R4, asm.DWord))
	}
	r.Aside(apart, read, func() { f.ReadApart(&group, base, at, func(int) { failed() }) })
}

// many emits the body of __bpf_usdt_read_many for a spec. It is for a constant
// number of arguments or, where that is 0, for any number.
func (r *reader) many(spec *Spec, arguments int) {
	most := cmp.Or(arguments, maxArgs)
	f := r.fetcher(spec.Args, context)
	words, left := reading, count
	var memory []int
	for i := range f.Args[:min(most, len(f.Args))] {
		if f.Readable(i) && f.Args[i].Kind == argspec.Memory {
			memory = append(memory, i)
		}
	}
	if len(memory) > 0 {
		r.Emit(asm.Mov.Reg(keptContext, context), asm.Mov.Reg(keptResult, reading),
			asm.Mov.Reg(keptNumber, count))
		f.Context, words, left = keptContext, keptResult, keptNumber
	}

	end := r.Label()
	if arguments > 0 {
		memory = r.readTogether(f, memory, words, arguments)
	}
	for i := range most {
		at := offsetWords + 8*i
		if arguments == 0 {
			r.JumpIfImm(asm.JLE, left, uint64(i), asm.R5, end)
		}
		switch {
		case !f.Readable(i):
			r.SetField(words, at, 0, asm.R4)
		case f.Args[i].Kind != argspec.Memory:
			f.Value(asm.R4, i)
			r.Emit(asm.StoreMem(words, int16(at), asm.R4, asm.DWord))
		case slices.Contains(memory, i):
			r.readWord(f, i, words)
		}
	}
	r.Place(end)
	r.Leave()
}

// readTogether emits reads of neighbours in memory, and returns the arguments
// that have no neighbours. It reads to the place of the header's window.
// Arguments of 8 bytes that lie in their order are read to their own place at
// once.
func (r *reader) readTogether(
	f *argcode.Fetcher, memory []int, words asm.Register, arguments int,
) (alone []int) {
	for _, g := range f.Groups(memory, 8*arguments) {
		at, inPlace := offsetWords+8*g.Args[0], true
		for n, i := range g.Args {
			inPlace = inPlace && f.Args[i].Size == 8 && i == g.Args[0]+n &&
				g.Distance(f.Args, i) == 8*n
		}
		switch {
		case inPlace:
		case len(g.Args) == 1 || g.Lead()+g.Span() > 8*arguments:
			alone = append(alone, g.Args...)
			continue
		default:
			at = offsetWords + 8*arguments + g.Lead()
		}
		apart, done := r.Label(), r.Label()
		f.ReadTogether(&g, words, at, apart)
		for _, i := range g.Args {
			if arg := &f.Args[i]; !inPlace {
				r.Emit(asm.LoadMem(asm.R4, words, int16(at+g.Distance(f.Args, i)),
					argcode.SizeOf(arg.Size)))
				f.Extend(asm.R4, arg)
				r.Emit(asm.StoreMem(words, int16(offsetWords+8*i), asm.R4, asm.DWord))
			}
		}
		r.Place(done)
		r.Aside(apart, done, func() {
			// Each to its own place: some may overlap in the traced process.
			for _, i := range g.Args {
				r.readWord(f, i, words)
			}
		})
	}
	return alone
}

// readWord emits the value of an argument in memory to its word, 0 if it cannot
// be read.
func (r *reader) readWord(f *argcode.Fetcher, index int, words asm.Register) {
	at, next := offsetWords+8*index, r.Label()
	r.readInPlace(f, index, words, at, func() {
		r.SetField(words, at, 0, asm.R4)
		r.Jump(next)
	})
	r.Place(next)
}
