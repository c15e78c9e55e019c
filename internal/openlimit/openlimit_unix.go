// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

// Package openlimit says how many descriptors this process may have.
package openlimit

import (
	"math"

	"golang.org/x/sys/unix"
)

// Get returns how many descriptors this process may have. The Go
// runtime raises the soft limit to the hard one when a program starts.
func Get() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
