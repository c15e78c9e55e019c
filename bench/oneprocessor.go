// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package main

import (
	"errors"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// oneProcessor is the last processor that this process may use. What takes
// nanoseconds is measured there for all: which caches have what is read depends
// on who has written it where.
func oneProcessor() (*unix.CPUSet, error) {
	var all, last unix.CPUSet
	if err := unix.SchedGetaffinity(0, &all); err != nil {
		return nil, os.NewSyscallError("sched_getaffinity", err)
	}
	for i := range 8 * 1024 {
		if all.IsSet(i) {
			last.Zero()
			last.Set(i)
		}
	}
	return &last, nil
}

// runOn runs work on these processors only.
func runOn(processors *unix.CPUSet, work func() error) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var before unix.CPUSet
	if err := unix.SchedGetaffinity(0, &before); err != nil {
		return os.NewSyscallError("sched_getaffinity", err)
	}
	if err := unix.SchedSetaffinity(0, processors); err != nil {
		return os.NewSyscallError("sched_setaffinity", err)
	}
	return errors.Join(work(),
		os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(0, &before)))
}

// keepOn has another process run on these processors only.
func keepOn(processors *unix.CPUSet, pid int) error {
	return os.NewSyscallError("sched_setaffinity", unix.SchedSetaffinity(pid, processors))
}
