// SPDX-License-Identifier: BSD-2-Clause

package attaching_test

import (
	"debug/elf"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/features"
	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/attaching"
)

// What a program gets depends on the kernel: a 32-bit program may run on one
// with 64 bits.
func TestAvoidGoesByTheKernel(t *testing.T) {
	version, err := features.LinuxVersionCode()
	qt.Assert(t, qt.IsNil(err))
	program := asm.Instructions{asm.Mov.Imm(asm.R0, 0).WithSymbol("main"), asm.Return()}
	for kernel, has := range map[elf.Machine]bool{
		elf.EM_X86_64: true, elf.EM_AARCH64: true, elf.EM_S390: false, elf.EM_NONE: false,
	} {
		avoids, err := attaching.AvoidPrivateStackIn(program, kernel)
		qt.Assert(t, qt.IsNil(err))
		want := len(program)
		if has && version >= 6<<16|13<<8 {
			want += len(attaching.AvoidPrivateStack())
		}
		qt.Check(t, qt.HasLen(avoids, want), qt.Commentf("%v", kernel))
		qt.Check(t, qt.Equals(avoids[0].Symbol(), "main"))
	}
}
