// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// OpenIn opens a regular file by the path that the process would use: below its
// root directory and in its mount namespace. The caller closes it. The name of
// the file is its path for the caller. The error is an [*Error].
func (f *FS) OpenIn(pid int, path string) (*os.File, error) {
	file, err := f.openIn(pid, path)
	if err != nil {
		return nil, &Error{PID: pid, Path: path, Op: "open", Err: err}
	}
	return file, nil
}

func (f *FS) openIn(pid int, path string) (*os.File, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, fmt.Errorf("%w: not an absolute path", os.ErrInvalid)
	}
	root := f.path(pid, "root")
	dir, err := openDirectory(root)
	if err != nil {
		return nil, classify(err)
	}
	defer unix.Close(dir)
	pathFD, err := openInRoot(dir, path)
	if err != nil {
		return nil, err
	}
	defer unix.Close(pathFD)
	if _, err := identify(pathFD, ""); err != nil {
		return nil, err
	}
	fd, err := openFile(descriptorPath(pathFD))
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), root+path), nil
}

func openFile(path string) (int, error) {
	for {
		// Whatever it is by now, opening it must not wait or give us a
		// terminal.
		fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
		if !errors.Is(err, unix.EINTR) {
			return fd, err
		}
	}
}

// descriptorPath is the path by which a descriptor of the caller's is opened
// anew.
func descriptorPath(fd int) string { return fmt.Sprintf("/proc/self/fd/%d", fd) }

func openDirectory(path string) (int, error) {
	return unix.Open(path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
}

// openInRoot finds a path as a process whose root directory is root would
// resolve it: symbolic links, which a container may make as it likes, lead
// nowhere else. The descriptor refers to the file without having opened it
// (O_PATH).
func openInRoot(root int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for range 16 { // "..", when anything is renamed meanwhile, is EAGAIN
		fd, err := unix.Openat2(root, path, &how)
		switch {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM):
			// Before Linux 5.6, or filtered: absolute links then lead outside.
			return unix.Openat(root, strings.TrimLeft(path, "/"), unix.O_PATH|unix.O_CLOEXEC, 0)
		}
		return fd, err
	}
	return -1, unix.EAGAIN
}
