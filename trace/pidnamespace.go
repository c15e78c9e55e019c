// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/pidnamespace"
	"github.com/gousdt/gousdt/trace/internal/bpfgen"
)

// ownPIDs returns the PID namespace of this process, nil for the initial one,
// or if that is not known.
func ownPIDs() *bpfgen.Namespace {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil ||
		stat.Ino == pidnamespace.Initial {
		return nil
	}
	device := uint64(stat.Dev)
	return &bpfgen.Namespace{
		Device: uint64(unix.Major(device))<<20 | uint64(unix.Minor(device)),
		Inode:  stat.Ino,
	}
}
