// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"fmt"
	"io/fs"
	"path/filepath"
)

// DebugRoot is the directory under which distributions keep separate debug
// files, named by build ID.
const DebugRoot = "/usr/lib/debug"

// FindDebugFile opens the separate debug file that belongs to f, for the
// symbols that were stripped from it. An empty path means the file named by the
// build ID under DebugRoot: .build-id/ab/cdef.debug for the build ID abcdef.
//
// Prelink moves a file, but not its debug file. Symbol and PLTGOT of the debug
// file return the addresses that things have in f: moved by as much as the
// section .stapsdt.base, or the first PT_LOAD segment where one of the files
// has no such section. What else is asked of the debug file has its own
// addresses.
//
// Machine and class must be the same, and where both files have a build ID
// that, too, else the error wraps ErrOtherBuildID. It wraps ErrUnknownDistance
// where there is nothing to compare. Without a path, the error wraps
// ErrNoBuildID where f has none, and fs.ErrNotExist where there is no debug
// file.
func (f *File) FindDebugFile(path string) (*File, error) {
	if path == "" {
		want, err := f.BuildID()
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
	if err := f.adopt(debug); err != nil {
		debug.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return debug, nil
}

// adopt makes an opened file the debug file of f, if it is.
func (f *File) adopt(debug *File) (err error) {
	if debug.Machine != f.Machine || debug.Class() != f.Class() {
		return fmt.Errorf("%w: %v of %v, not %v of %v", ErrOtherBuildID, debug.Machine, debug.Class(), f.Machine, f.Class())
	}
	want, _ := f.BuildID() // "" if there is none
	if got, err := debug.BuildID(); err == nil && want != "" && got != want {
		return fmt.Errorf("%w: build ID %s, not %s", ErrOtherBuildID, got, want)
	}
	debug.symbols.moved, err = f.distance(debug)
	return err
}

// distance returns by how much the addresses of f are above those of its debug
// file.
func (f *File) distance(debug *File) (uint64, error) {
	switch {
	case f.HasProbeBase && debug.HasProbeBase:
		return f.ProbeBase - debug.ProbeBase, nil
	case len(f.Segments) > 0 && len(debug.Segments) > 0:
		return f.Segments[0].Address - debug.Segments[0].Address, nil
	case f.Type == elf.ET_REL:
		return 0, nil // is not prelinked
	}
	return 0, ErrUnknownDistance
}
