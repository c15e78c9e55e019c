// SPDX-License-Identifier: BSD-2-Clause

// Package sys has what several packages need of the system.
package sys

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// A ClosedError names something that was used after it was closed. To errors.Is
// it is os.ErrClosed, whose own text speaks of files.
type ClosedError string

func (e ClosedError) Error() string { return string(e) + " is closed" }

func (ClosedError) Is(target error) bool { return target == os.ErrClosed }

// An UnsupportedError names a feature that the running kernel lacks. It wraps
// errors.ErrUnsupported. Its fields are only for its text.
type UnsupportedError struct {
	Feature string // what is missing
	Since   string // the Linux version that brought it, "" where no version does
	Hint    string // what to do instead, may be empty
}

func (e *UnsupportedError) Error() string {
	s := "the kernel has no " + e.Feature
	if e.Since != "" {
		s += " (needs Linux " + e.Since + ")"
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

// ErrGone is proc.ErrGone: a process does not exist, or not any more.
var ErrGone = errors.New("no such process")

// Gone says that a process does not exist, or not any more.
func Gone(pid int) error { return fmt.Errorf("process %d: %w", pid, ErrGone) }

// CloseTogether closes all closers at the same time, so that they wait for the
// kernel together.
func CloseTogether[C io.Closer](closers []C) error {
	errs := make([]error, len(closers))
	var wait sync.WaitGroup
	for i, c := range closers {
		wait.Go(func() { errs[i] = c.Close() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// Machines has those of 64-bit kernels, by GOARCH and by what uname says.
var Machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "x86_64": elf.EM_X86_64,
	"arm64": elf.EM_AARCH64, "aarch64": elf.EM_AARCH64, "armv8l": elf.EM_AARCH64,
	"s390x": elf.EM_S390, "ppc64": elf.EM_PPC64, "ppc64le": elf.EM_PPC64,
	"riscv64": elf.EM_RISCV, "loong64": elf.EM_LOONGARCH}

// InitialPIDNamespace is the inode of the initial PID namespace
// (PROC_PID_INIT_INO in include/linux/proc_ns.h). In another one, such as that
// of a container, a process does not see the processes outside of it.
const InitialPIDNamespace = 0xeffffffc
