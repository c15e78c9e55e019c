// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package commandline

import (
	"io/fs"
	"os"
	"syscall"
)

// nonblocking lets a FIFO be opened without waiting for a writer.
const nonblocking = syscall.O_NONBLOCK

// isOwn reports whether a file belongs to this user or root, and no group but
// the owner's own can write it.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()) &&
		(info.Mode().Perm()&0o020 == 0 || stat.Gid == stat.Uid)
}

// isReplaceable reports whether a new file in the place of a regular one would
// be the same to all: that one is the user's, with one name.
func isReplaceable(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && info.Mode().IsRegular() && stat.Nlink == 1 && int(stat.Uid) == os.Geteuid()
}
