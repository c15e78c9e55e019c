// SPDX-License-Identifier: BSD-2-Clause

package initramfs

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// AddLibraries adds what the archive's dynamic programs of that kind need to
// start: the dynamic loader they name and, in the directory where it looks, the
// shared libraries they ask for, and those that the libraries ask for. A
// library for such programs that is in the archive already, in any directory,
// is not looked for. All others come from the first of the host's directories
// that has a library of that name for such programs: dirs, then the program's
// own.
//
// The result names the libraries that were not found, with a file that asks
// for each. That is no error: the archive may hold files that nobody runs.
func (a *Archive) AddLibraries(p platform.Program, dirs ...string) (missing []string, err error) {
	dirs = append(slices.Clone(dirs), p.Libraries...)
	present := make(map[string]bool) // by file name
	var needed []need
	look := func(name string) error {
		runs, needs, err := a.needs(p, name)
		if runs {
			present[path.Base(name)] = true
			needed = append(needed, needs...)
		}
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(a.entries)) {
		if err := look(name); err != nil {
			return nil, err
		}
	}
	for len(needed) > 0 {
		n := needed[0]
		needed = needed[1:]
		base := path.Base(n.name)
		if present[base] {
			continue
		}
		present[base] = true
		source := findLibrary(p, dirs, base)
		if source == "" {
			missing = append(missing, fmt.Sprintf("%s (for %s)", n.name, n.by))
			continue
		}
		at := n.name
		if !path.IsAbs(at) {
			at = path.Join(p.GuestLibraries, at)
		}
		if err := a.AddFile(at, source); err != nil {
			return nil, err
		}
		if err := look(at); err != nil {
			return nil, err
		}
	}
	return missing, nil
}

// need is a file that another one asks for: the loader by its path, a library
// by its name.
type need struct{ name, by string }

// needs lists what a file asks for. runs is whether it is an ELF file of that
// kind.
func (a *Archive) needs(p platform.Program, name string) (runs bool, needs []need, err error) {
	source := a.entries[name].source
	if source == "" {
		return false, nil, nil
	}
	raw, err := os.Open(source)
	if err != nil {
		return false, nil, fmt.Errorf("initramfs: %w", err)
	}
	defer raw.Close()
	f, err := elf.NewFile(raw)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("initramfs: %s: %w", source, err)
	}
	if !p.Runs(f) {
		return false, nil, nil
	}
	for _, segment := range f.Progs {
		if segment.Type != elf.PT_INTERP || segment.Filesz > maxPath {
			continue
		}
		loader, err := io.ReadAll(segment.Open())
		// A file with debug information only has room for it, but no text.
		if path := strings.TrimRight(string(loader), "\x00"); err == nil &&
			strings.HasPrefix(path, "/") {
			needs = append(needs, need{path, name})
		}
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return true, needs, nil // a file that is broken on purpose: nobody runs it
	}
	for _, library := range libraries {
		needs = append(needs, need{library, name})
	}
	return true, needs, nil
}

// maxPath is the greatest length of a path in Linux.
const maxPath = 4096

// findLibrary returns the path of a library on the host, or "".
func findLibrary(p platform.Program, dirs []string, name string) string {
	for _, dir := range dirs {
		file := filepath.Join(dir, name)
		f, err := elf.Open(file)
		if err != nil {
			continue
		}
		runs := p.Runs(f)
		f.Close()
		if runs {
			return file
		}
	}
	return ""
}
