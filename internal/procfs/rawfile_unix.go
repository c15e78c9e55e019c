// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package procfs

import (
	"errors"
	"io"

	"golang.org/x/sys/unix"
)

// RawFile is a descriptor alone. An os.File also has a finalizer and is
// registered with the poller, which costs more than reading a file of proc. It
// must not escape the function that opened it.
type RawFile int

func OpenRaw(path string) (RawFile, error) {
	for {
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.EINTR) {
			return RawFile(fd), err
		}
	}
}

func (f RawFile) Read(p []byte) (int, error) {
	for {
		n, err := unix.Read(int(f), p)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, err
		case n == 0 && len(p) > 0:
			return 0, io.EOF
		}
		return n, nil
	}
}

func (f RawFile) Close() error { return unix.Close(int(f)) }
