// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/gousdt/gousdt/internal/bpfobject"
)

// headerFunctions are the functions of bpf/usdt.bpf.h and bpf/usdt_spec.bpf.h
// that programs call. The header makes them hidden functions, of which an
// object that is linked from several files has one each.
var headerFunctions = map[string]bool{
	"bpf_usdt_arg":         true,
	"bpf_usdt_arg_address": true,
	"bpf_usdt_arg_size":    true,
	"__bpf_usdt_read_many": true,
}

// makeHeaderFunctionsStatic makes the verifier check these functions with what
// they are given, such as a pointer into the stack of their caller. It refuses
// them as global functions, which it checks by themselves.
func makeHeaderFunctionsStatic(spec *ebpf.CollectionSpec) {
	for _, prog := range spec.Programs {
		for i := range prog.Instructions {
			ins := &prog.Instructions[i]
			f := btf.FuncMetadata(ins)
			if f == nil || !headerFunctions[f.Name] || f.Linkage == btf.StaticFunc {
				continue
			}
			// Programs, and copies of the collection, share what describes the
			// function.
			static := *f
			static.Linkage = btf.StaticFunc
			*ins = btf.WithFuncMetadata(*ins, &static)
			bpfobject.MarkHidden(ins)
		}
	}
}
