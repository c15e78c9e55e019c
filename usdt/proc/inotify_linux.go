// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Bits of the kernel's reports about directories.
const (
	inMade      = unix.IN_CREATE | unix.IN_MOVED_TO
	inRemoved   = unix.IN_DELETE | unix.IN_MOVED_FROM
	inIsDir     = unix.IN_ISDIR
	inIgnored   = unix.IN_IGNORED // the directory is not watched any more
	inQOverflow = unix.IN_Q_OVERFLOW
)

// inotify reports directory entries that are made and removed.
type inotify struct{ *os.File }

func newInotify() (*inotify, error) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("inotify: %w", err)
	}
	return &inotify{os.NewFile(uintptr(fd), "inotify")}, nil
}

// add watches a directory, and returns the number of the watch.
func (n *inotify) add(dir string) (watch int32, err error) {
	raw, err := n.SyscallConn()
	if err != nil {
		return 0, err
	}
	closed := raw.Control(func(fd uintptr) {
		var number int
		number, err = unix.InotifyAddWatch(int(fd), dir, inMade|inRemoved|unix.IN_ONLYDIR)
		watch = int32(number)
	})
	if closed != nil {
		return 0, closed
	}
	return watch, err
}

// read calls changed with each report, until the descriptor is closed.
func (n *inotify) read(changed func(watch int32, mask uint32, name string)) {
	buf := make([]byte, 64<<10)
	for {
		n, err := n.Read(buf)
		if err != nil {
			return
		}
		for rest := buf[:n]; len(rest) >= unix.SizeofInotifyEvent; {
			size := unix.SizeofInotifyEvent + int(binary.NativeEndian.Uint32(rest[12:]))
			if size > len(rest) {
				break
			}
			name, _, _ := bytes.Cut(rest[unix.SizeofInotifyEvent:size], []byte{0})
			changed(int32(binary.NativeEndian.Uint32(rest)), binary.NativeEndian.Uint32(rest[4:]),
				string(name))
			rest = rest[size:]
		}
	}
}

// inode returns the number of a directory, which is the ID of its cgroup.
func inode(dir string) (uint64, error) {
	var stat syscall.Stat_t
	if err := syscall.Stat(dir, &stat); err != nil {
		return 0, &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	return stat.Ino, nil
}
