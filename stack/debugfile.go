// SPDX-License-Identifier: BSD-2-Clause

package stack

import (
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/debuginfo"
)

// FindDebugFile returns the path of a file's installed debug file, "" if there
// is none. It is for [elfnote.File.SearchDebugFile] and the DebugFile of
// [usdt.Target], for arguments that name symbols. Nothing is fetched.
//
// It searches by build ID below /usr/lib/debug and in the debuginfod caches of
// the user ($DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME, $HOME/.cache), and by the
// name in .gnu_debuglink beside a file that was opened by a path. The error
// names a debug file for which the file's directory is not searched.
//
// [usdt.Target]: https://pkg.go.dev/github.com/gousdt/gousdt/usdt#Target
func FindDebugFile(file *elfnote.File) (path string, err error) { return debuginfo.Find(file) }
