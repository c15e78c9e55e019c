// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"math/rand/v2"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/argspec"
	"github.com/gousdt/gousdt/internal/testprog"
)

// The value of an argument is the same by the program that is generated for its
// text and by what the text says, read here in another way.
func FuzzArgument(f *testing.F) {
	for _, seed := range []string{
		"8@%rdi", "-4@%eax", "1@%ah", "2@%r9w", "-1@%sil", "8@$-1", "4@$18446744073709551615",
		"-2@$0x8000",
		"8@(%rsp)", "-4@-20(%rbp)", "8@8(%rsp)", "4@16(%rax,%rbx,4)", "1@(%rsi,%rdi)",
		"8@-8(,%rcx,8)", "8f@(%rbx)", "4f@%eax",
	} {
		f.Add(seed, uint64(1))
	}
	k := &testKernels[0]
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		random := rand.New(rand.NewPCG(seed, seed))
		w := k.newWorld(random, 1)
		for _, name := range []string{"%rbp", "%rsp", "%rbx", "%r8"} {
			k.setRegister(w.bpfMachine, name, userMemory+uint64(random.IntN(userMemorySize)))
		}
		size, want, readable, known := testprog.ReadX86(text, w.context, w.user)
		if !known {
			return
		}
		args := argspec.Parse(elf.EM_X86_64, text)
		qt.Assert(t, qt.HasLen(args, 1), qt.Commentf("%q", text))
		plan := &Plan{Kernel: k.forPlan(), Events: &Events{Ring: testRing, RingSize: 1 << 20}}
		block, err := plan.Block(&Site{Args: args})
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(w.run(append(asm.Instructions{asm.Mov.Reg(asm.R6, asm.R1)},
			block.Instructions...))))
		place, raw := block.Record.Args[0], w.records[0]
		comment := qt.Commentf("%q is %v", text, args[0])
		switch {
		case args[0].Kind == argspec.Constant:
			unused := 64 - 8*size
			qt.Assert(t, qt.Equals(args[0].Constant<<unused, want<<unused), comment)
		case !readable:
			qt.Assert(t, qt.Equals(raw[place.Failed], 1), comment)
		default:
			qt.Assert(t, qt.Not(qt.Equals(place.Value, None)), comment)
			qt.Assert(t, qt.IsTrue(place.Failed == None || raw[place.Failed] == 0), comment)
			qt.Assert(t, qt.Equals(w.load(raw[place.Value:][:size]), want), comment)
		}
	})
}
