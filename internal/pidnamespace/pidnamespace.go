// SPDX-License-Identifier: BSD-2-Clause

// Package pidnamespace knows the initial PID namespace. In another one, such as
// that of a container, a process does not see the processes outside of it.
package pidnamespace

import (
	"fmt"
	"os"
)

// Initial is the inode of the initial PID namespace (PROC_PID_INIT_INO in
// include/linux/proc_ns.h).
const Initial = 0xeffffffc

// IsInitial reports whether this process is in the initial PID namespace, or
// not known to be in another.
func IsInitial() bool {
	link, err := os.Readlink("/proc/self/ns/pid")
	return err != nil || link == fmt.Sprintf("pid:[%d]", uint32(Initial))
}
