// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/internal/argcode"
)

// CompareExchangeProbe returns a program that the kernel loads if it knows what
// Kernel.CompareExchange is about.
func CompareExchangeProbe() asm.Instructions {
	a := argcode.NewAssembler()
	a.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R1, 0),
		asm.StoreMem(asm.R10, -8, asm.R0, asm.DWord))
	a.CompareExchange(asm.R10, -8, asm.R1)
	a.Leave()
	program, _ := a.Finish()
	return program
}

// ProcessorIDProbe returns a program that the kernel loads unless it takes
// Kernel.Processors.
func ProcessorIDProbe() asm.Instructions {
	return asm.Instructions{asm.FnGetSmpProcessorId.Call(), asm.Mov.Imm(asm.R0, 0), asm.Return()}
}

// TaskSize is how much of struct task_struct TaskProbe copies. It is about as
// large as that is on machines where it is small, and holds what comes before
// the state of the processor.
const TaskSize = 6 << 10

// TaskProbe returns a program for a raw tracepoint that copies the kernel's
// description of the current thread to an array of one element.
func TaskProbe(task int) asm.Instructions {
	a := argcode.NewAssembler()
	none := a.Label()
	key := a.Alloc(8)
	a.Emit(asm.StoreImm(asm.R10, int16(key), 0, asm.Word))
	a.AddressOf(asm.R2, asm.R10, key)
	a.Emit(asm.LoadMapPtr(asm.R1, task))
	a.Call(asm.FnMapLookupElem)
	a.JumpIfImm(asm.JEq, asm.R0, 0, asm.R1, none)
	a.Emit(asm.Mov.Reg(asm.R7, asm.R0))
	a.Call(asm.FnGetCurrentTask)
	a.Emit(asm.Mov.Reg(asm.R6, asm.R0))
	const part = 1 << 10
	for at := 0; at < TaskSize; at += part {
		a.AddressOf(asm.R1, asm.R7, at)
		a.Emit(asm.Mov.Imm(asm.R2, part))
		a.AddressOf(asm.R3, asm.R6, at)
		a.Call(asm.FnProbeReadKernel)
	}
	a.Place(none)
	a.Leave()
	instructions, _ := a.Finish() // there is nothing that could be too large
	return instructions
}
