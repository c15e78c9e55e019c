// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/argcode"
	"github.com/gousdt/gousdt/internal/bpfobject"
	"github.com/gousdt/gousdt/internal/specialise"
)

// The readers of package specialise are tested here, where there are machines
// to run them on.

// readerProgram is a program that calls bpf_usdt_arg of usdt.bpf.h.
func readerProgram(helper asm.BuiltinFunc) asm.Instructions {
	const name = "bpf_usdt_arg"
	parameter := btf.FuncParam{Type: &btf.Int{Name: "long", Size: 8}}
	info := &btf.Func{Name: name, Linkage: btf.StaticFunc, Type: &btf.FuncProto{
		Return: parameter.Type, Params: []btf.FuncParam{parameter, parameter, parameter},
	}}
	body := asm.Instructions{btf.WithFuncMetadata(helper.Call().WithSymbol(name), info),
		asm.Return()}
	bpfobject.MarkHidden(&body[0])
	load := asm.Mov.Reg(asm.R2, asm.R6) // any number
	return append(asm.Instructions{load.WithSymbol("main"), asm.Call.Label(name), asm.Return()},
		body...)
}

// reader returns the function that is made of it for these specs.
func reader(t *testing.T, k *testKernel, program asm.Instructions, libbpf bool,
	specs []specialise.Spec) asm.Instructions {
	t.Helper()
	kernel := k.forPlan()
	made, err := (&specialise.Program{
		Instructions: program, Libbpf: libbpf,
		Machine: kernel.Machine, BigEndian: kernel.bigEndian(),
	}).For(specs)
	qt.Assert(t, qt.IsNil(err))
	for i := range made {
		if i > 0 && made[i].Symbol() != "" {
			return made[i:]
		}
	}
	t.Fatal("the function is not there")
	return nil
}

// inlined returns a program that asks for one argument, made for one spec.
func inlined(t *testing.T, k *testKernel, program asm.Instructions, libbpf bool, argument int,
	specs []specialise.Spec) asm.Instructions {
	t.Helper()
	kernel := k.forPlan()
	jump := func(distance int16) asm.Instruction {
		return asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource), Offset: distance}
	}
	ask := asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSymbol("main"),
		jump(5), // there and back over what gets longer
		asm.Mov.Imm(asm.R2, int32(argument)), asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, -8),
		asm.Call.Label("bpf_usdt_arg"), asm.Return(),
		jump(-6), asm.Return(),
	}
	made, err := (&specialise.Program{
		Instructions: append(ask, program[3:]...), Libbpf: libbpf,
		Machine: kernel.Machine, BigEndian: kernel.bigEndian(),
	}).For(specs)
	qt.Assert(t, qt.IsNil(err))
	return made
}

func hasCall(program asm.Instructions) bool {
	return slices.ContainsFunc(program,
		func(ins asm.Instruction) bool { return ins.IsFunctionCall() })
}

// runReader runs a function for an argument, with the end of the stack as the
// place of the result, and returns the stack.
func (w *world) runReader(t *testing.T, function asm.Instructions, argument int,
	comment qt.Comment) (r0 uint64, memory []byte) {
	t.Helper()
	program := append(asm.Instructions{asm.Mov.Imm(asm.R2, int32(argument)),
		asm.Mov.Reg(asm.R3, asm.R10), asm.Sub.Imm(asm.R3, 8)}, function...)
	qt.Assert(t, qt.IsNil(w.run(program)), comment)
	return w.registers[0], w.stack[:]
}

// checkReaders makes up sites of one machine, and has the readers that are made
// for them read the arguments of one.
func checkReaders(t *testing.T, k *testKernel, random *rand.Rand) {
	var w *world
	count := random.IntN(15)
	if random.IntN(2) == 0 {
		w = k.newWorld(random, count)
	} else {
		w = k.newNeighbours(random, 1+count)
	}
	kernel := k.forPlan()
	helper, libbpf := asm.FnProbeReadUser, random.IntN(2) == 0
	w.cold = make(map[uint64]bool)
	if random.IntN(4) == 0 {
		helper = asm.FnCopyFromUser
	}
	// Other specs of the same program, of which no site is hit.
	specs := []specialise.Spec{{ID: 1 + random.Uint32()>>random.IntN(32), Args: w.args}}
	w.cookie = uint64(specs[0].ID)
	for range random.IntN(3) * random.IntN(8) {
		specs = append(specs, specialise.Spec{ID: specs[len(specs)-1].ID + 1 + random.Uint32()%9,
			Args: k.newWorld(random, random.IntN(14)).args})
	}
	random.Shuffle(len(specs), func(i, j int) { specs[i], specs[j] = specs[j], specs[i] })
	comment := qt.Commentf("%s: %v", k.name, w.args)
	freeze := func() {
		// Only a function that may wait for memory reads what is not there.
		if helper == asm.FnCopyFromUser && random.IntN(2) == 0 {
			w.cold[userMemory/leastPage] = true
		}
	}

	unavailable := -int64(unix.EOPNOTSUPP)
	if libbpf {
		unavailable = -int64(unix.EINVAL)
	}
	check := func(i int, r0 uint64, memory []byte) {
		t.Helper()
		value, code := uint64(0), -int64(unix.ENOENT)
		if i < min(len(w.args), 12) {
			var readable bool
			switch value, readable = w.expect(kernel, i); {
			case readable:
				code = 0
			case argcode.Readable(&w.args[i], kernel.Machine):
				code = -int64(unix.EFAULT)
			default:
				code = unavailable
			}
		}
		qt.Assert(t, qt.Equals(int64(r0), code), comment)
		qt.Assert(t, qt.Equals(w.load(memory[len(memory)-8:]), value), comment)
	}
	one := reader(t, k, readerProgram(helper), libbpf, specs)
	for i := range 14 {
		freeze()
		r0, memory := w.runReader(t, one, i, comment)
		check(i, r0, memory)
	}
	for i := range 14 {
		program := inlined(t, k, readerProgram(helper), libbpf, i, specs[:1])
		if helper == asm.FnCopyFromUser && hasCall(program) {
			continue // it waits for memory, for which it needs more registers
		}
		if specs[0].ID == uint32(w.cookie) {
			r0, memory := w.runReader(t, program, 0, comment)
			check(i, r0, memory)
		}
	}

	checkMerged(t, k, random, w, libbpf, helper, check)
}

// checkMerged has a program ask for several arguments one after the other,
// which it then reads together where they are neighbours.
func checkMerged(
	t *testing.T, k *testKernel, random *rand.Rand, w *world, libbpf bool, helper asm.BuiltinFunc,
	check func(i int, r0 uint64, memory []byte),
) {
	const words = 14
	program := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1).WithSymbol("main")}
	asked := make([]int, 1+random.IntN(words))
	for n := range asked {
		asked[n] = random.IntN(13)
		program = append(program,
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(asked[n])),
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(-8*(n+1))))
		if random.IntN(6) == 0 {
			// Here a block ends.
			program = append(program, asm.Instruction{OpCode: asm.Ja.Op(asm.ImmSource)})
		}
		program = append(program, asm.Call.Label("bpf_usdt_arg"),
			asm.StoreMem(asm.R10, int16(-8*(words+n+1)), asm.R0, asm.DWord))
	}
	kernel := k.forPlan()
	made, err := (&specialise.Program{
		Instructions: append(append(program, asm.Return()),
			readerProgram(helper)[3:]...), Libbpf: libbpf,
		Machine: kernel.Machine, BigEndian: kernel.bigEndian(),
	}).For([]specialise.Spec{{ID: uint32(w.cookie), Args: w.args}})
	qt.Assert(t, qt.IsNil(err))
	if hasCall(made) {
		return // for which there is no code in the interpreter
	}
	qt.Assert(t, qt.IsNil(w.run(made)))
	end := len(w.stack)
	for n, i := range asked {
		check(i, w.load(w.stack[end-8*(words+n+1):][:8]), w.stack[:end-8*n])
	}
}

func TestReadersReadEveryArgument(t *testing.T) {
	for i := range testKernels {
		k := &testKernels[i]
		t.Run(k.name, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(21, uint64(i)))
			for range 500 {
				checkReaders(t, k, random)
			}
		})
	}
}

// askAll is a program that asks for arguments one after the other, and uses its
// stack down to a depth, at least that of the arguments.
func askAll(count, depth int) asm.Instructions {
	program := asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1).WithSymbol("main"),
		asm.StoreImm(asm.R10, int16(-max(depth, 8*count)), 0, asm.Byte)}
	for n := range count {
		program = append(program,
			asm.Mov.Reg(asm.R1, asm.R6), asm.Mov.Imm(asm.R2, int32(n)),
			asm.Mov.Reg(asm.R3, asm.R10), asm.Add.Imm(asm.R3, int32(-8*(n+1))),
			asm.Call.Label("bpf_usdt_arg"))
	}
	return append(append(program, asm.Return()), readerProgram(asm.FnProbeReadUser)[3:]...)
}

// Arguments on the stack are read by one call, if the program leaves room in
// its own stack, and one by one where some of them are not there.
func TestReadersReadNeighboursTogether(t *testing.T) {
	k := &testKernels[0]
	for _, test := range []struct {
		there int // words
		apart bool
		depth int // of the stack
		reads int
	}{
		{12, true, 80, 10},
		{12, false, 80, 1},
		{12, false, 408, 1},
		{12, false, 409, 10}, // there is no room
		{5, false, 80, 1 + 10},
	} {
		program := specialise.Program{
			Instructions: askAll(10, test.depth), Machine: k.kernel,
			Apart: test.apart,
		}
		specs := []specialise.Spec{{ID: 1, Args: stackArguments(10)}}
		made, err := program.For(specs)
		qt.Assert(t, qt.IsNil(err))
		m := stackMachine(test.there)
		qt.Assert(t, qt.IsNil(m.run(made)))
		qt.Check(t, qt.Equals(m.reads, test.reads), qt.Commentf("%v", test))
		for n := range 10 {
			want := uint64(0)
			if n < test.there {
				want = uint64(n + 1)
			}
			qt.Check(t, qt.Equals(m.load(m.stack[len(m.stack)-8*(n+1):][:8]), want))
		}
	}
}

// A program that is hit at a site that it was not made for reads nothing.
func TestReadersOfAnotherSiteReadNothing(t *testing.T) {
	k := &testKernels[0]
	w := k.newWorld(rand.New(rand.NewPCG(1, 2)), 3)
	w.args = argspec.Parse(k.program, "8@%rax 8@%rbx 8@%rcx")
	specs := []specialise.Spec{{ID: 5, Args: w.args}, {ID: 9, Args: w.args}}
	for _, cookie := range []uint64{0, 4, 6, 8, 10, 1<<32 + 5} {
		w.cookie = cookie
		one := reader(t, k, readerProgram(asm.FnProbeReadUser), false, specs)
		r0, memory := w.runReader(t, one, 0, qt.Commentf("%d", cookie))
		qt.Check(t, qt.Equals(int64(r0), -int64(unix.ESRCH)))
		qt.Check(t, qt.Equals(w.load(memory[len(memory)-8:]), 0))
	}
}

// A specialised program reads what its description says, on every machine.
func FuzzReaders(f *testing.F) {
	f.Add(uint64(1))
	f.Fuzz(func(t *testing.T, seed uint64) {
		for i := range testKernels {
			checkReaders(t, &testKernels[i], rand.New(rand.NewPCG(seed, uint64(i))))
		}
	})
}

// Specs are told apart by all 32 bits of their IDs, where an int has no more
// either.
func TestReadersTellAnySpecsApart(t *testing.T) {
	k := &testKernels[0]
	w := k.newWorld(rand.New(rand.NewPCG(1, 2)), 0)
	var specs []specialise.Spec
	for i, id := range []uint32{1, 1 << 30, 3 << 30, 1<<32 - 1} {
		specs = append(specs, specialise.Spec{ID: id,
			Args: argspec.Parse(k.program, "8@$"+strconv.Itoa(i))})
	}
	one := reader(t, k, readerProgram(asm.FnProbeReadUser), false, specs)
	for i, spec := range specs {
		w.cookie = uint64(spec.ID)
		r0, memory := w.runReader(t, one, 0, qt.Commentf("%d", spec.ID))
		qt.Check(t, qt.Equals(r0, 0))
		qt.Check(t, qt.Equals(w.load(memory[len(memory)-8:]), uint64(i)))
	}
}
