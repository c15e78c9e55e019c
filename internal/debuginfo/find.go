// SPDX-License-Identifier: BSD-2-Clause

package debuginfo

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/gousdt/gousdt/elfnote"
)

// Find returns the path of a file's separate debug file, for
// [elfnote.File.SearchDebugFile]. It is "" if there is none. It fetches
// nothing.
//
// Debug files are searched for by the build ID below /usr/lib/debug and in the
// debuginfod caches of the user ($DEBUGINFOD_CACHE_PATH, $XDG_CACHE_HOME,
// $HOME/.cache), and by the name in .gnu_debuglink beside a file that was
// opened by a path. The error names a debug file for which the file's directory
// is not searched.
func Find(file *elfnote.File) (path string, err error) {
	opened := file.OSFile()
	if opened == nil {
		return "", nil
	}
	read, err := New(opened)
	if err != nil {
		return "", nil // it has been closed
	}
	read.path = pathOf(opened)
	debug, err := read.FindDebugFile("")
	if err == nil {
		debug.Close()
		return debug.path, nil
	}
	if name := read.UnsearchedDebugFile(); name != "" {
		return "", fmt.Errorf("its debug file %q is only searched for beside a FILE that is named, "+
			"not in the directories of a process", name)
	}
	return "", nil
}

// pathOf returns the name of an open file if that leads to it. A name that
// leads through a process is not followed: see [File.resolved].
func pathOf(file *os.File) string {
	path, err := filepath.Abs(file.Name())
	if err != nil || leadsThroughProcess(path) {
		return ""
	}
	named, err := os.Stat(path)
	if err != nil {
		return ""
	}
	if is, err := file.Stat(); err != nil || !os.SameFile(named, is) {
		return ""
	}
	return file.Name()
}
