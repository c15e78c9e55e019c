// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"io"

	"golang.org/x/sys/unix"
)

// isMadeUp reports whether a directory is on a file system that the kernel
// makes up.
func isMadeUp(path string) bool {
	var stat unix.Statfs_t
	return unix.Statfs(path, &stat) == nil && isMadeUpType(int64(stat.Type))
}

// scannedFile is a file that is opened to look whether it is ELF. Of a hundred
// thousand files few are, so that what package os does beside costs most.
type scannedFile int

// openScanned opens a file. If it has become a pipe since it was found, that
// does not block.
func openScanned(path string) (scannedFile, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC|unix.O_NOCTTY, 0)
		if err != unix.EINTR {
			return scannedFile(fd), err
		}
	}
}

func (f scannedFile) ReadAt(b []byte, offset int64) (int, error) {
	n := 0
	for n < len(b) {
		m, err := unix.Pread(int(f), b[n:], offset+int64(n))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return n, err
		case m == 0:
			return n, io.EOF
		default:
			n += m
		}
	}
	return n, nil
}

func (f scannedFile) Close() error { return unix.Close(int(f)) }
