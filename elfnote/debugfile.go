// SPDX-License-Identifier: BSD-2-Clause

package elfnote

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// DebugRoot is the directory under which distributions keep separate debug
// files, named by build ID.
const DebugRoot = "/usr/lib/debug"

// ErrOtherBuildID is wrapped by the error for a debug file that was split off
// another build.
var ErrOtherBuildID = errors.New("the debug file belongs to another build")

// ErrUnknownDistance is wrapped by the error for a debug file with neither a
// section .stapsdt.base nor a PT_LOAD segment in common with the file it
// belongs to.
var ErrUnknownDistance = errors.New("cannot tell by how much prelink moved the file: " +
	"its debug file has neither .stapsdt.base nor a PT_LOAD segment to compare")

// OpenDebugFile opens the separate debug file that belongs to f, for the
// symbols that were stripped from it. An empty path means the file named by the
// build ID under DebugRoot: .build-id/ab/cdef.debug for the build ID abcdef.
//
// Prelink moves a file, but not its debug file. Symbol and PLTGOT of the debug
// file return the addresses that things have in f: moved by as much as the
// section .stapsdt.base, or the first PT_LOAD segment where one of the files
// has no such section. What else is asked of the debug file has its own
// addresses, see Moved.
//
// Where both files have a build ID it must be the same, else the error wraps
// ErrOtherBuildID. It wraps ErrUnknownDistance where there is nothing to
// compare. Without a path, the error wraps ErrNoBuildID where f has none, and
// fs.ErrNotExist where there is no debug file.
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
	distance, err := f.distance(debug)
	if err != nil {
		debug.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	debug.symbols.moved = distance
	return debug, nil
}

// Moved returns what to add to addresses in f, which OpenDebugFile opened, to
// get those in the file it belongs to. They wrap around: that file may be
// below. It is 0 of other files, and of nearly all debug files: prelink is rare
// by now.
func (f *File) Moved() uint64 { return f.symbols.moved }

// distance returns by how much the addresses of f are above those of its debug
// file.
func (f *File) distance(debug *File) (uint64, error) {
	switch {
	case f.hasBase && debug.hasBase:
		return f.base - debug.base, nil
	case len(f.segments) > 0 && len(debug.segments) > 0:
		return f.segments[0].Address - debug.segments[0].Address, nil
	case f.kind == Relocatable:
		return 0, nil // is not prelinked
	}
	return 0, ErrUnknownDistance
}
