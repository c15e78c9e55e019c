// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// findIn finds a regular file by the path that a process would use, which has
// the directory dir in proc. The file that it returns has not been opened
// (O_PATH), and its name is the path for the caller. The error wraps [ErrGone]
// if the process has ended, and os.ErrInvalid if the path is not absolute.
func findIn(dir, path string) (*os.File, Identity, error) {
	if !strings.HasPrefix(path, "/") {
		return nil, Identity{}, fmt.Errorf("%w: not an absolute path", os.ErrInvalid)
	}
	inside := dir + "/root"
	root, err := unix.Open(inside, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, Identity{}, Classify(err)
	}
	defer unix.Close(root)
	fd, err := openInRoot(root, path)
	if err != nil {
		return nil, Identity{}, err
	}
	file := os.NewFile(uintptr(fd), inside+path)
	id, err := identify(fd, "")
	if err != nil {
		file.Close()
		return nil, Identity{}, err
	}
	return file, id, nil
}

// openFile opens a file that was regular a moment ago. Whatever it is by now,
// opening it does not wait, and makes it no controlling terminal.
func openFile(path, name string) (*os.File, error) {
	fd, err := -1, error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		fd, err = unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	}
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), name), nil
}

// openInRoot finds a path as a process whose root directory is root would
// resolve it: symbolic links, which a container may make as it likes, lead
// nowhere else. The descriptor refers to the file without having opened it
// (O_PATH).
func openInRoot(root int, path string) (int, error) {
	how := unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_IN_ROOT}
	for range 16 { // ".." fails with EAGAIN if anything is renamed meanwhile
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

// identify returns the identity of the file at a path, following symbolic links
// and opening nothing, or of a descriptor if the path is "".
func identify(fd int, path string) (Identity, error) {
	flags := unix.AT_STATX_SYNC_AS_STAT
	if path == "" {
		flags |= unix.AT_EMPTY_PATH
	} else {
		fd = unix.AT_FDCWD
	}
	var st unix.Statx_t
	err := error(unix.EINTR)
	for errors.Is(err, unix.EINTR) {
		err = unix.Statx(fd, path, flags,
			unix.STATX_BASIC_STATS|unix.STATX_BTIME|unix.STATX_MNT_ID, &st)
	}
	if err != nil {
		return Identity{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return Identity{}, ErrNotRegular
	}
	id := Identity{
		FileID: FileID{Device: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), Inode: st.Ino},
		Contents: Contents{
			Size:     int64(min(st.Size, 1<<63-1)),
			Modified: nanoseconds(st.Mtime),
			Changed:  nanoseconds(st.Ctime),
		},
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.Born = nanoseconds(st.Btime)
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		id.Mount = st.Mnt_id
	}
	// Only file systems without a disk of their own have major number 0, which
	// saves the others a system call.
	if st.Dev_major == 0 {
		var fs unix.Statfs_t
		if path == "" {
			err = unix.Fstatfs(fd, &fs)
		} else {
			err = unix.Statfs(path, &fs)
		}
		if err != nil {
			return Identity{}, err
		}
		id.Overlay = int64(fs.Type) == unix.OVERLAYFS_SUPER_MAGIC
	}
	return id, nil
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }
