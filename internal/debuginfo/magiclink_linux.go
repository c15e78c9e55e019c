// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"runtime"
	"syscall"
	"unsafe"
)

// leadsThroughProcess reports whether a path leads through a magic link, such
// as /proc/PID/root, /proc/PID/fd/N and /proc/PID/map_files/A-B, wherever
// procfs is mounted. It also reports true if the kernel cannot tell.
//
// The kernel resolves the path up to the first magic link, and opens nothing.
func leadsThroughProcess(path string) bool {
	// Linux has openat2 since 5.6. The system call has the same number on all
	// machines that have BPF.
	const (
		openat2             = 437
		currentDirectory    = -100       // AT_FDCWD
		onlyPath            = 0o10000000 // O_PATH
		resolveNoMagicLinks = 0x02
	)
	name, err := syscall.BytePtrFromString(path)
	if err != nil {
		return true
	}
	how := struct{ flags, mode, resolve uint64 }{
		flags: onlyPath | syscall.O_CLOEXEC, resolve: resolveNoMagicLinks}
	directory := currentDirectory
	for {
		fd, _, errno := syscall.Syscall6(openat2, uintptr(directory),
			uintptr(unsafe.Pointer(name)), uintptr(unsafe.Pointer(&how)), unsafe.Sizeof(how), 0, 0)
		runtime.KeepAlive(name)
		switch errno {
		case 0:
			syscall.Close(int(fd))
			return false
		case syscall.EINTR:
		default:
			return true
		}
	}
}
