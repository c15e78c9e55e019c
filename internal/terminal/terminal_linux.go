// SPDX-License-Identifier: BSD-2-Clause

package terminal

import (
	"os"

	"golang.org/x/sys/unix"
)

// IsTerminal reports whether a file is a terminal on which lines can be erased
// and coloured.
func IsTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil && os.Getenv("TERM") != "dumb"
}
