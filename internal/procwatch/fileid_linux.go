// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
)

// identify returns the identity of the file at a path, following symbolic links
// and opening nothing, or of a descriptor if the path is "".
func identify(fd int, path string) (identity, error) {
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
		return identity{}, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return identity{}, procfs.ErrNotRegular
	}
	id := identity{
		FileID: FileID{device: uint64(st.Dev_major)<<32 | uint64(st.Dev_minor), inode: st.Ino},
		contents: contents{
			size:     int64(min(st.Size, 1<<63-1)),
			modified: nanoseconds(st.Mtime),
			changed:  nanoseconds(st.Ctime),
		},
	}
	if st.Mask&unix.STATX_BTIME != 0 {
		id.born = nanoseconds(st.Btime)
	}
	if st.Mask&unix.STATX_MNT_ID != 0 {
		id.mount = st.Mnt_id
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
			return identity{}, err
		}
		id.overlay = int64(fs.Type) == unix.OVERLAYFS_SUPER_MAGIC
	}
	return id, nil
}

func nanoseconds(t unix.StatxTimestamp) int64 { return t.Sec*1e9 + int64(t.Nsec) }
