// SPDX-License-Identifier: BSD-2-Clause

package elffile

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
)

// FindDebugFile opens the separate debug file that belongs to f, for the
// symbols that were stripped from it. An empty path means one that is found, as
// [File.debugFiles] says.
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
// ErrNoBuildID where f has neither a build ID nor the name of a debug file, and
// fs.ErrNotExist where there is no debug file.
func (f *File) FindDebugFile(path string) (*File, error) {
	if path != "" {
		return f.openDebugFile(debugFile{path: path})
	}
	files, err := f.debugFiles()
	if err != nil {
		return nil, err
	}
	err = fmt.Errorf("debug file: %w", fs.ErrNotExist)
	for _, file := range files {
		debug, e := f.openDebugFile(file)
		if e == nil {
			return debug, nil
		}
		if !errors.Is(e, fs.ErrNotExist) && errors.Is(err, fs.ErrNotExist) {
			err = e // says more
		}
	}
	return nil, err
}

func (f *File) openDebugFile(file debugFile) (*File, error) {
	if file.linked {
		// It may be anything: to open a device can do something.
		if info, err := os.Stat(file.path); err != nil || !info.Mode().IsRegular() {
			return nil, fmt.Errorf("%s: %w", file.path, fs.ErrNotExist)
		}
	}
	debug, err := Open(file.path)
	if err != nil {
		return nil, err
	}
	if err = f.adopt(debug); err == nil && file.linked {
		err = f.checkLinked(debug, file.checksum)
	}
	if err != nil {
		debug.Close()
		return nil, fmt.Errorf("%s: %w", file.path, err)
	}
	return debug, nil
}

// adopt makes an opened file the debug file of f, if it is.
func (f *File) adopt(debug *File) (err error) {
	if debug.Machine != f.Machine || debug.Class() != f.Class() {
		return fmt.Errorf("%w: %v of %v, not %v of %v", ErrOtherBuildID, debug.Machine,
			debug.Class(), f.Machine, f.Class())
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
