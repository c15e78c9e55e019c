// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/rlimit"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// RequireBPF skips a test where this process may not load a tracing program,
// and fails it in continuous integration. Any other error than a missing
// permission fails it, too. On machines with 32 bits it skips every test. Below
// Linux 5.11 it lifts the limit on locked memory that BPF maps count against.
func RequireBPF(t testing.TB) {
	t.Helper()
	testneeds.Only(t, "traced programs are those of machines with 64 bits", "amd64", "arm64",
		"loong64", "ppc64le", "riscv64", "s390x")
	switch err := canLoad(); {
	case errors.Is(err, os.ErrPermission):
		testneeds.Missing(t, "needs to load BPF programs (root, or CAP_BPF and CAP_PERFMON): %v",
			err)
	case err != nil:
		t.Fatalf("loading a BPF program: %v", err)
	}
}

// RequireStacks skips a test where the kernel walks no user stacks: on s390x it
// does from Linux 6.7 on (its commit 504b73d00a55).
func RequireStacks(t testing.TB) {
	t.Helper()
	if runtime.GOARCH == "s390x" {
		testneeds.Kernel(t, "6.7", "user stacks on s390x")
	}
}

var canLoad = sync.OnceValue(func() error {
	if err := rlimit.RemoveMemlock(); err != nil {
		return err
	}
	program, err := ebpf.NewProgram(&ebpf.ProgramSpec{
		Name:         "testprog_probe",
		Type:         ebpf.Kprobe,
		License:      "Dual BSD/GPL",
		Instructions: asm.Instructions{asm.LoadImm(asm.R0, 0, asm.DWord), asm.Return()},
	})
	if err != nil {
		return err
	}
	return program.Close()
})
