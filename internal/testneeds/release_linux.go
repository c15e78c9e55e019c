// SPDX-License-Identifier: BSD-2-Clause

package testneeds

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// kernelRelease returns what the kernel calls itself.
func kernelRelease() (string, error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return "", fmt.Errorf("uname: %w", err)
	}
	return unix.ByteSliceToString(name.Release[:]), nil
}
