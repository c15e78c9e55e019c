// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"

	"golang.org/x/sys/unix"
)

func isATTY(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}
