// SPDX-License-Identifier: BSD-2-Clause

package vm

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/cavaliergopher/cpio"

	"github.com/gousdt/gousdt/kernels/internal/platform"
)

// archive is a guest's first file system, which its kernel unpacks: a cpio
// archive in the "newc" format, not compressed, because the kernel under
// emulation would spend longer on unpacking it than the host saves.
type archive struct {
	entries map[string]entry // by absolute, clean path in the guest
}

// entry is one file. Its content is data, or that of the host's file source.
type entry struct {
	mode   cpio.FileMode
	data   string // for a symbolic link its target, for a directory nothing
	source string
}

func (a *archive) addBytes(name, data string) {
	a.add(name, entry{mode: cpio.TypeReg | 0o644, data: data})
}

// addDir adds an empty directory.
func (a *archive) addDir(name string) { a.add(name, entry{mode: cpio.TypeDir | 0o755}) }

// addFile adds the host's file source, with its permissions. A symbolic link
// is followed. The file is read when the archive is written.
func (a *archive) addFile(name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", source)
	}
	a.add(name, entry{mode: cpio.TypeReg | cpio.FileMode(info.Mode().Perm()), source: source})
	return nil
}

// addTree adds the host's directory source, if it exists, with all that is in
// it: files, directories and symbolic links (not followed). Sockets, devices
// and pipes are left out.
func (a *archive) addTree(name, source string) error {
	err := filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(source, file)
		if err != nil {
			return err
		}
		at := path.Join(name, filepath.ToSlash(relative))
		switch {
		case d.IsDir():
			a.addDir(at)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return err
			}
			a.add(at, entry{mode: cpio.TypeSymlink | 0o777, data: target})
		case d.Type().IsRegular():
			return a.addFile(at, file)
		}
		return nil
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// add puts an entry and the directories above it into the archive.
func (a *archive) add(name string, e entry) {
	if name = path.Clean("/" + name); name == "/" {
		return
	}
	if a.entries == nil {
		a.entries = make(map[string]entry)
	}
	a.addDir(path.Dir(name))
	a.entries[name] = e
}

// write writes the archive, in an order that does not change from run to run.
func (a *archive) write(w io.Writer) error {
	out := cpio.NewWriter(w)
	// Sorted by name, a directory comes before what is in it.
	for i, name := range slices.Sorted(maps.Keys(a.entries)) {
		e := a.entries[name]
		data := []byte(e.data)
		var err error
		if e.source != "" {
			data, err = os.ReadFile(e.source)
		}
		if err == nil {
			err = out.WriteHeader(&cpio.Header{Name: strings.TrimPrefix(name, "/"), Mode: e.mode,
				Inode: int64(i + 1), Links: 1, Size: int64(len(data))})
		}
		if err == nil {
			_, err = out.Write(data)
		}
		if err != nil {
			return fmt.Errorf("initramfs: writing %s: %w", name, err)
		}
	}
	return out.Close()
}

// addLibraries adds what the archive's dynamic programs of that kind need to
// start: the dynamic loader they name and, in the directory where it looks, the
// shared libraries they ask for, and those that the libraries ask for. A
// library for such programs that is in the archive already, in any directory,
// is not looked for. One that is not found is left out: the archive may hold
// files that nobody runs.
func (a *archive) addLibraries(p platform.Program) error {
	present := make(map[string]bool) // by file name
	var needed []string
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
			return err
		}
	}
	for len(needed) > 0 {
		at, base := needed[0], path.Base(needed[0])
		needed = needed[1:]
		if present[base] {
			continue
		}
		present[base] = true
		if !path.IsAbs(at) {
			at = path.Join(p.GuestLibraries, at)
		}
		source := findLibrary(p, base)
		if source == "" {
			continue
		}
		if err := errors.Join(a.addFile(at, source), look(at)); err != nil {
			return err
		}
	}
	return nil
}

// needs lists what a file asks for: the loader by its path, libraries by their
// names. runs is whether it is an ELF file of that kind.
func (a *archive) needs(p platform.Program, name string) (runs bool, needs []string, err error) {
	source := a.entries[name].source
	if source == "" {
		return false, nil, nil
	}
	f, err := elf.Open(source)
	var format *elf.FormatError
	if errors.As(err, &format) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return false, nil, nil
	}
	if err != nil {
		return false, nil, fmt.Errorf("%s: %w", source, err)
	}
	defer f.Close()
	if !p.Runs(f) {
		return false, nil, nil
	}
	for _, segment := range f.Progs {
		const maxPath = 4096 // of Linux
		if segment.Type != elf.PT_INTERP || segment.Filesz > maxPath {
			continue
		}
		loader, err := io.ReadAll(segment.Open())
		// A file with debug information only has room for it, but no text.
		if path := strings.TrimRight(string(loader), "\x00"); err == nil &&
			strings.HasPrefix(path, "/") {
			needs = append(needs, path)
		}
	}
	// An error is that of a file that is broken on purpose: nobody runs it.
	libraries, _ := f.ImportedLibraries()
	return true, append(needs, libraries...), nil
}

// findLibrary returns the path of a library on the host, or "".
func findLibrary(p platform.Program, name string) string {
	for _, dir := range p.Libraries {
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
