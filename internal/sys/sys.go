// SPDX-License-Identifier: BSD-2-Clause

// Package sys has what several packages say in the same words of the system:
// the errors for what is closed and for what the kernel lacks, the limit on
// descriptors, and the PID namespace.
package sys

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
)

// ClosedError is the error for the use of what it names after that was closed.
// It is an os.ErrClosed to errors.Is, whose own text speaks of files.
type ClosedError string

// Error says what is closed.
func (e ClosedError) Error() string { return string(e) + " is closed" }

// Is reports whether the target is os.ErrClosed.
func (ClosedError) Is(target error) bool { return target == os.ErrClosed }

// An UnsupportedError says what the running kernel lacks. Packages usdt and
// trace return it as one that wraps errors.ErrUnsupported: nothing but its text
// depends on the rest.
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

// Unwrap returns errors.ErrUnsupported.
func (e *UnsupportedError) Unwrap() error { return errors.ErrUnsupported }

// ErrGone is proc.ErrGone: a process does not exist, or not any more.
var ErrGone = errors.New("no such process")

// Gone says that a process does not exist, or not any more.
func Gone(pid int) error { return fmt.Errorf("process %d: %w", pid, ErrGone) }

// CloseTogether closes all closers at the same time: what each of them waits
// for, such as the kernel, is then waited for once.
func CloseTogether[C io.Closer](closers []C) error {
	errs := make([]error, len(closers))
	var wait sync.WaitGroup
	for i, c := range closers {
		wait.Go(func() { errs[i] = c.Close() })
	}
	wait.Wait()
	return errors.Join(errs...)
}

// InitialPIDNamespace is the inode of the initial PID namespace
// (PROC_PID_INIT_INO in include/linux/proc_ns.h). In another one, such as that
// of a container, a process does not see the processes outside of it.
const InitialPIDNamespace = 0xeffffffc

// IsInitialPIDNamespace reports whether this process is in the initial PID
// namespace, or not known to be in another.
func IsInitialPIDNamespace() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err != nil || link == fmt.Sprintf("pid:[%d]", uint32(InitialPIDNamespace))
}
