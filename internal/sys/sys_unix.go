// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package sys

import (
	"debug/elf"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// CheckTracee returns nil if the kernel can attach to the process with this
// PID, or if pid is 0. The error wraps [ErrGone] if there is no such process.
// Other errors say that it is a thread, or a process whose main thread has
// exited before others.
func CheckTracee(pid int) error {
	switch {
	case pid == 0:
		return nil
	case pid < 0 || pid > math.MaxInt32:
		return fmt.Errorf("%d is no PID: want 1 to %d, or 0 for every process", pid, math.MaxInt32)
	case errors.Is(unix.Kill(pid, 0), unix.ESRCH):
		return Gone(pid)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return nil // hidden: the kernel has the last word
	}
	ended := false
	for line := range strings.Lines(string(status)) {
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch {
		case name == "Tgid" && value == "0":
			return Gone(pid) // it has ended since the file was opened
		case name == "Tgid" && value != strconv.Itoa(pid):
			return fmt.Errorf("process %d: this is a thread: give the PID of its process, %s", pid,
				value)
		case name == "State":
			ended = strings.HasPrefix(value, "Z")
		case name == "Threads" && ended && value != "1":
			return fmt.Errorf("process %d: its main thread has exited, and by that the kernel knows a process: "+
				"attach without PID", pid)
		}
	}
	if ended {
		return Gone(pid)
	}
	return nil
}

// MaxDescriptors returns how many descriptors this process may have. The Go
// runtime raises the soft limit to the hard one when a program starts.
func MaxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}

// KernelMachine returns the machine of the kernel, which lays out the
// registers.
func KernelMachine() (elf.Machine, error) {
	// A 64-bit program needs a kernel of its own machine. What uname says
	// depends on the personality of the process.
	if machine, ok := Machines[runtime.GOARCH]; ok {
		return machine, nil
	}

	// A 32-bit program may run on a kernel of either width.
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return elf.EM_NONE, fmt.Errorf("asking for the kernel's machine: %w", err)
	}
	uname := unix.ByteSliceToString(name.Machine[:])
	if machine, ok := Machines[uname]; ok {
		return machine, nil
	}
	return elf.EM_NONE, fmt.Errorf("attaching on a kernel for %q is not supported, only on 64-bit ones", uname)
}
