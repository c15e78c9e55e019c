// SPDX-License-Identifier: BSD-2-Clause

package initramfs

import (
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
)

// Archive is what goes into an initramfs. The zero value is an empty one.
type Archive struct {
	entries map[string]entry // by absolute, clean path in the guest
}

// entry is one file. Its content is data, or that of the host's file source.
type entry struct {
	mode   cpio.FileMode
	data   []byte // for a symbolic link its target, for a directory nothing
	source string
}

// ErrConflict says that two different things were to have the same name.
var ErrConflict = errors.New("initramfs: name is taken")

// AddBytes adds a file.
func (a *Archive) AddBytes(name string, data []byte, mode fs.FileMode) error {
	return a.add(name, entry{mode: cpio.TypeReg | cpio.FileMode(mode.Perm()), data: data})
}

// AddFile adds the host's file source, with its permissions. A symbolic link
// is followed. The file is read when the archive is written.
func (a *Archive) AddFile(name, source string) error {
	info, err := os.Stat(source)
	if err != nil {
		return fmt.Errorf("initramfs: %w", err)
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("initramfs: %s is not a regular file", source)
	}
	return a.add(name,
		entry{mode: cpio.TypeReg | cpio.FileMode(info.Mode().Perm()), source: source})
}

// AddDir adds an empty directory.
func (a *Archive) AddDir(name string) error {
	return a.add(name, entry{mode: cpio.TypeDir | 0o755})
}

// AddLink adds a symbolic link.
func (a *Archive) AddLink(name, target string) error {
	return a.add(name, entry{mode: cpio.TypeSymlink | 0o777, data: []byte(target)})
}

// AddTree adds the host's directory source with all that is in it: files,
// directories and symbolic links (not followed). Sockets, devices and pipes are
// left out.
func (a *Archive) AddTree(name, source string) error {
	return filepath.WalkDir(source, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("initramfs: %w", err)
		}
		relative, err := filepath.Rel(source, file)
		if err != nil {
			return fmt.Errorf("initramfs: %w", err)
		}
		at := path.Join(name, filepath.ToSlash(relative))
		switch {
		case d.IsDir():
			return a.AddDir(at)
		case d.Type() == fs.ModeSymlink:
			target, err := os.Readlink(file)
			if err != nil {
				return fmt.Errorf("initramfs: %w", err)
			}
			return a.AddLink(at, target)
		case d.Type().IsRegular():
			return a.AddFile(at, file)
		}
		return nil
	})
}

// Clone returns another archive with the same entries.
func (a *Archive) Clone() *Archive { return &Archive{entries: maps.Clone(a.entries)} }

// Has reports whether something of that name is in the archive.
func (a *Archive) Has(name string) bool {
	_, ok := a.entries[clean(name)]
	return ok
}

func clean(name string) string { return path.Clean("/" + name) }

// add puts an entry and the directories above it into the archive. The same
// thing may be added twice.
func (a *Archive) add(name string, e entry) error {
	name = clean(name)
	if name == "/" {
		return nil
	}
	if a.entries == nil {
		a.entries = make(map[string]entry)
	}
	if old, ok := a.entries[name]; ok && !same(old, e) {
		return fmt.Errorf("%w: %s", ErrConflict, name)
	}
	if err := a.add(path.Dir(name), entry{mode: cpio.TypeDir | 0o755}); err != nil {
		return err
	}
	a.entries[name] = e
	return nil
}

func same(a, b entry) bool {
	return a.mode == b.mode && a.source == b.source && string(a.data) == string(b.data)
}

// WriteTo writes the archive.
func (a *Archive) WriteTo(w io.Writer) (int64, error) {
	counter := &countingWriter{w: w}
	archive := cpio.NewWriter(counter)
	// Sorted by name, a directory comes before what is in it.
	for i, name := range slices.Sorted(maps.Keys(a.entries)) {
		if err := writeEntry(archive, int64(i+1), strings.TrimPrefix(name, "/"),
			a.entries[name]); err != nil {
			return counter.n, fmt.Errorf("initramfs: writing %s: %w", name, err)
		}
	}
	if err := archive.Close(); err != nil {
		return counter.n, fmt.Errorf("initramfs: %w", err)
	}
	return counter.n, nil
}

func writeEntry(w *cpio.Writer, inode int64, name string, e entry) error {
	header := &cpio.Header{Name: name, Mode: e.mode, Inode: inode, Links: 1,
		Size: int64(len(e.data))}
	if e.source == "" {
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		_, err := w.Write(e.data)
		return err
	}
	f, err := os.Open(e.source)
	if err != nil {
		return err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	header.Size = info.Size()
	if err := w.WriteHeader(header); err != nil {
		return err
	}
	// A file that shrinks while it is read would shift all that follows.
	_, err = io.CopyN(w, f, info.Size())
	return err
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
