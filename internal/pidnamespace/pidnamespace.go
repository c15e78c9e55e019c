// SPDX-License-Identifier: BSD-2-Clause

// Package pidnamespace knows the initial PID namespace. In another one, such as
// that of a container, a process does not see the processes outside of it.
package pidnamespace

import (
	"os"
	"syscall"
)

// Initial is the inode of the initial PID namespace (PROC_PID_INIT_INO in
// include/linux/proc_ns.h).
const Initial = 0xeffffffc

// IsInitial reports whether this process is in the initial PID namespace, or
// not known to be in another.
func IsInitial() bool {
	info, err := os.Stat("/proc/self/ns/pid")
	if err != nil {
		return true
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	return !ok || stat.Ino == Initial
}
