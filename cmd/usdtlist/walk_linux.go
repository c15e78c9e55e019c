// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"os"

	"golang.org/x/sys/unix"
)

// isMadeUp reports whether a directory is on a file system that the kernel
// makes up.
func isMadeUp(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && isMadeUpType(int64(stat.Type))
}

// openELF opens a file, or returns nil if it is no ELF file. It does not block
// if the file has become a pipe since it was found. It avoids os.Open, whose
// overhead would dominate: of a hundred thousand files few are ELF.
func openELF(path string) (*os.File, error) {
	fd, err := -1, error(unix.EINTR)
	for err == unix.EINTR {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, err
	}
	var begin [len(elf.ELFMAG)]byte
	n, err := unix.Pread(fd, begin[:], 0)
	if err != nil || string(begin[:n]) != elf.ELFMAG {
		unix.Close(fd)
		return nil, nil // also a directory, by now, or an error that concerns no ELF file
	}
	return os.NewFile(uintptr(fd), path), nil
}
