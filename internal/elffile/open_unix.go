// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package elffile

import "syscall"

// openFlags keep the opening of a pipe from waiting for somebody to write to
// it. A regular file does not know the difference.
const openFlags = syscall.O_NONBLOCK
