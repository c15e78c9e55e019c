// SPDX-License-Identifier: BSD-2-Clause

package bpfgen

import (
	"debug/elf"
	"encoding/binary"
)

// Kernel is what the generated code must know of the kernel that runs it.
type Kernel struct {
	// Machine lays out the registers in the context.
	Machine elf.Machine

	// Order is the byte order of the kernel, which is this process's own.
	Order binary.ByteOrder

	// CompareExchange: BPF_CMPXCHG can be used (Linux 5.12, kernel commit
	// 5ffa25502b5a). Without it minima and maxima are kept by a load and a
	// store, which is right on those kernels since they do not preempt a
	// program.
	CompareExchange bool

	// Processors is the descriptor of a per-processor array of one u64, the
	// processor's number, where bpf_get_smp_processor_id cannot be called; else
	// 0. Some just-in-time compilers put code of their own in its place, and
	// where they are switched off (net.core.bpf_jit_enable, as by default on
	// riscv64) the kernel may refuse programs that call it: Linux 7.2 does,
	// 6.12 does not.
	Processors int

	// PIDs is the PID namespace whose numbers are reported, nil for the initial
	// one. Processes and threads of other namespaces have the number 0.
	PIDs *Namespace
}

// Namespace names a PID namespace as bpf_get_ns_current_pid_tgid does (Linux
// 5.7, kernel commit b4490c5c4e02).
type Namespace struct {
	Device uint64 // of the nsfs, as the kernel has it: major<<20 | minor
	Inode  uint64
}

// word returns the size of a saved register in bytes.
func (k Kernel) word() int {
	if k.Machine == elf.EM_ARM {
		return 4
	}
	return 8
}

// instructionPointer returns the offset in the context of the address of the
// breakpoint. It reports whether it is known.
func (k Kernel) instructionPointer() (offset int16, ok bool) {
	switch k.Machine {
	case elf.EM_X86_64:
		return 128, true // rip
	case elf.EM_AARCH64:
		return 256, true // pc, behind x0 to x30 and sp
	case elf.EM_S390:
		return 16, true // the address of the program status word
	case elf.EM_PPC64:
		return 256, true // nip, behind r0 to r31
	case elf.EM_RISCV:
		return 0, true // pc
	case elf.EM_LOONGARCH:
		return 264, true // csr_era, behind r0 to r31 and orig_a0
	}
	return 0, false
}

func (k Kernel) bigEndian() bool { return k.Order.Uint16([]byte{0, 1}) == 1 }
