// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package sys

import (
	"math"

	"golang.org/x/sys/unix"
)

// MaxDescriptors returns how many descriptors this process may have. The Go
// runtime raises the soft limit to the hard one when a program starts.
func MaxDescriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt32
	}
	return int(min(uint64(limit.Cur), math.MaxInt32))
}
