// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package elffile

import "syscall"

// openFlags keep the opening of a named pipe from waiting for a writer. They
// make no difference for a regular file.
const openFlags = syscall.O_NONBLOCK
