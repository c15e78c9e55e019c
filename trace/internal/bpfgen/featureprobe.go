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
	a.Emit(asm.Mov.Imm(asm.R0, 0), asm.Mov.Imm(asm.R1, 0), asm.StoreMem(asm.R10, -8, asm.R0, asm.DWord))
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

// EmptyProgram returns a program that does nothing.
func EmptyProgram() asm.Instructions { return asm.Instructions{asm.Mov.Imm(asm.R0, 0), asm.Return()} }
