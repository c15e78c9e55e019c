// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// DebugRoot is the directory under which distributions keep separate debug files, named by build ID.
const DebugRoot = "/usr/lib/debug"

// ErrOtherBuildID is wrapped by the error for a debug file that was split off another build.
var ErrOtherBuildID = errors.New("the debug file belongs to another build")

// OpenDebugFile opens the separate debug file that belongs to f, for the symbols that were stripped from it. An empty
// path means the file named by the build ID under DebugRoot: .build-id/ab/cdef.debug for the build ID abcdef.
//
// Where both files have a build ID it must be the same, else the error wraps ErrOtherBuildID. Without a path, the
// error wraps ErrNoBuildID where f has none, and fs.ErrNotExist where there is no debug file.
func (f *File) OpenDebugFile(path string) (*File, error) {
	want, err := f.BuildID()
	if path == "" {
		if err != nil {
			return nil, err
		}
		if len(want) < 4 {
			return nil, fmt.Errorf("debug file for build ID %q: %w", want, fs.ErrNotExist)
		}
		path = filepath.Join(DebugRoot, ".build-id", want[:2], want[2:]+".debug")
	}

	debug, err := Open(path)
	if err != nil {
		return nil, err
	}
	if got, err := debug.BuildID(); err == nil && want != "" && got != want {
		debug.Close()
		return nil, fmt.Errorf("%s: %w: build ID %s, not %s", path, ErrOtherBuildID, got, want)
	}
	return debug, nil
}
