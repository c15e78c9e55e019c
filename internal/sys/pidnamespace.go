// SPDX-License-Identifier: BSD-2-Clause

package sys

import (
	"fmt"
	"os"
)

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
