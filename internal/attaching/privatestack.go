// SPDX-License-Identifier: BSD-2-Clause

package attaching

import (
	"debug/elf"
	"slices"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/features"
)

// privateStacksSince is the first kernel that has private stacks, as the kernel
// encodes it.
const privateStacksSince = 6<<16 | 13<<8

// AvoidPrivateStack returns instructions that make each run of a program use
// the stack of its thread, wherever in the program's first function they are.
// They change R0.
//
// From Linux 6.13 on, a program that needs 64 bytes of stack or more has one
// for each processor, its private stack (kernel commit a76ab5731e32). That is
// safe where a program cannot begin on a processor before the one that runs
// there has ended. Programs of uprobes can: they may be preempted, sleepable
// ones may wait for a page, and another thread then runs the same program on
// the same stack. Keys and arguments of one hit become those of the other. On
// Linux 7.2 this befell one hit in a hundred of sixteen busy threads.
//
// A program with a tail call has no private stack. The kernel sees that this
// one is never made, and removes it.
func AvoidPrivateStack() asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0),
		{OpCode: asm.JEq.Op(asm.ImmSource), Dst: asm.R0, Constant: 0, Offset: 1},
		asm.FnTailCall.Call(),
	}
}

// AvoidPrivateStackIn puts these instructions in front of a compiled program,
// if the running kernel, which is one for a machine, needs them. Kernels
// without private stacks get the program as it is: those of some machines
// refuse tail calls in programs that consist of several functions.
func AvoidPrivateStackIn(
	program asm.Instructions, kernel elf.Machine,
) (asm.Instructions, error) {
	// The machines whose kernel has private stacks, and which run Go. Kernels
	// of both take tail calls in programs with functions since 6.0.
	if kernel != elf.EM_X86_64 && kernel != elf.EM_AARCH64 || len(program) == 0 ||
		HasTailCall(program) { // then it gets no private stack anyway
		return program, nil
	}
	version, err := features.LinuxVersionCode()
	if err != nil || version < privateStacksSince {
		return program, err
	}
	avoid := AvoidPrivateStack()
	// The metadata of a function is at its first instruction.
	program = slices.Clone(program)
	old := &program[0]
	avoid[0] = btf.WithFuncMetadata(avoid[0].WithSymbol(old.Symbol()).WithSource(old.Source()),
		btf.FuncMetadata(old))
	*old = btf.WithFuncMetadata(old.WithSymbol(""), nil)
	return append(avoid, program...), nil
}

// HasTailCall reports whether a program makes tail calls.
func HasTailCall(program asm.Instructions) bool {
	return slices.ContainsFunc(program, func(ins asm.Instruction) bool {
		return ins.IsBuiltinCall() && asm.BuiltinFunc(ins.Constant) == asm.FnTailCall
	})
}
