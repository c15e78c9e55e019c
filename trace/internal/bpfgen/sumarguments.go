// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"github.com/cilium/ebpf/asm"

	"github.com/gousdt/gousdt/argspec"
)

// SumArguments returns a program that fetches arguments, adds them up, and does
// nothing with the sum: what benchmarks of fetching measure. Without arguments
// it is the empty program.
func SumArguments(kernel Kernel, args []argspec.Arg) (asm.Instructions, error) {
	f := newFetcher(kernel, args)
	end := f.Label()
	if len(args) > 0 {
		f.Emit(asm.Mov.Reg(asm.R6, asm.R1), asm.Mov.Imm(asm.R9, 0))
		indices := make([]int, len(args))
		for i := range args {
			indices[i] = i
		}
		f.load(end, indices...)
		for i := range args {
			f.value(asm.R1, i)
			f.Emit(asm.Add.Reg(asm.R9, asm.R1))
		}
	}
	f.Place(end)
	f.Leave()
	return f.Finish()
}
