// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package commandline

import (
	"io/fs"
	"os"
	"syscall"
)

// nonblocking has a FIFO opened at once.
const nonblocking = syscall.O_NONBLOCK

// isOwn reports whether a file is this user's or root's, and no group's but its
// owner's to write.
func isOwn(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && (stat.Uid == 0 || int(stat.Uid) == os.Geteuid()) &&
		(info.Mode().Perm()&0o020 == 0 || stat.Gid == stat.Uid)
}
