// SPDX-License-Identifier: BSD-2-Clause

package testprog

import (
	"errors"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// AllowLockedMemory makes the call that raises the limit on locked memory
// succeed without effect, if CAP_SYS_RESOURCE is missing. The profiler insists
// on it, and kernels since 5.11 do not need it. It lasts until this process
// ends.
func AllowLockedMemory() error {
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(0, unix.RLIMIT_MEMLOCK, &limit, nil); !errors.Is(err, unix.EPERM) {
		return err
	}
	const number, resource = 0, 16 + 8 // in struct seccomp_data: the call, and its second argument
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: number},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PRLIMIT64, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: resource},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.RLIMIT_MEMLOCK, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO}, // 0: it has succeeded
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	filter := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if _, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER,
		unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&filter))); errno != 0 {
		return fmt.Errorf("seccomp: %w", errno)
	}
	return nil
}
