// SPDX-License-Identifier: BSD-2-Clause

//go:build unix

package proc

import (
	"io/fs"
	"syscall"
)

func userOfInfo(info fs.FileInfo) (uint32, bool) {
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return 0, false
	}
	return st.Uid, true
}
