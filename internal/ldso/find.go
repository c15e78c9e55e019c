// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Find returns the path of the library or program called name, for this
// process's machine and environment. The error wraps [fs.ErrNotExist] if there
// is none; it says what was searched.
func Find(name string) (path string, err error) {
	return newSearch(name, "/", hostTarget(), hostEnvironment).find()
}

// FindInProcess returns the path of the library or program called name as a
// process would find it: in its file system, for the machine of the program
// that it runs, and with its environment variables. The process is given by its
// directory in the proc file system, such as "/proc/12"; below "root" of that
// directory, the path can be opened from here. Errors are as those of [Find].
func FindInProcess(process, name string) (path string, err error) {
	root := process + "/root"
	wanted := hostTarget()
	if program, err := readHeader(process + "/exe"); err == nil {
		wanted = program.target()
	}
	path, err = newSearch(name, root, wanted, environment(process)).find()
	return strings.TrimPrefix(path, root), err
}

// find finds what the search is for. The path starts with the root.
func (s *search) find() (string, error) {
	name := s.name
	if name == "" || strings.ContainsAny(name, "/\x00") {
		return "", fmt.Errorf("%q: %w: not the bare name of a library or program", name,
			fs.ErrInvalid)
	}
	if isLibraryName(name) {
		if path := s.library(name); path != "" {
			return path, nil
		}
		return "", s.notFound()
	}
	path, err := s.program(name)
	if path != "" || err != nil {
		return path, err
	}
	library := name + ".so"
	if !strings.HasPrefix(name, "lib") {
		library = "lib" + library
	}
	if path := s.library(library); path != "" {
		return path, nil
	}
	return "", s.notFound()
}

// isLibraryName reports whether a name is that of a library rather than of a
// program.
func isLibraryName(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// search is one search and what it saw.
type search struct {
	name     string
	root     string // what is "/" to whom the name means something
	target   target
	getenv   func(string) string
	searched []string   // directories and files, in order
	rejected []rejected // files of a matching name that are not what is wanted
}

// rejected is a file that was passed over.
type rejected struct {
	path string
	err  error
}

func newSearch(name, root string, wanted target, getenv func(string) string) *search {
	return &search{name: name, root: filepath.Clean(root), target: wanted, getenv: getenv}
}

func (s *search) notFound() error {
	var b strings.Builder
	what := "program or library"
	if isLibraryName(s.name) {
		what = "library"
	}
	fmt.Fprintf(&b, "no such %s for %s", what, s.target.name)
	if s.root != "/" {
		fmt.Fprintf(&b, " under %s", s.root)
	}
	for _, rejected := range s.rejected {
		fmt.Fprintf(&b, "; %s: %v", rejected.path, rejected.err)
	}
	fmt.Fprintf(&b, " (searched %s; give a path to name another file)",
		strings.Join(s.searched, ", "))
	return &notFoundError{name: s.name, text: b.String()}
}

// notFoundError says what was searched in vain.
type notFoundError struct{ name, text string }

func (e *notFoundError) Error() string { return e.name + ": " + e.text }

// Unwrap makes errors.Is(err, fs.ErrNotExist) true.
func (e *notFoundError) Unwrap() error { return fs.ErrNotExist }

// library searches a library by its exact name and, where the name ends in
// ".so", by its versions. glibc's places come before musl's: where both are
// installed, "libc.so" is libc.so.6.
func (s *search) library(name string) string {
	for _, loader := range [][]place{s.glibcPlaces(), s.muslPlaces()} {
		for _, p := range loader {
			s.searched = append(s.searched, p.name)
			if path := s.firstUsable(p.exact(name)); path != "" {
				return path
			}
		}
		if !strings.HasSuffix(name, ".so") {
			continue
		}
		for _, p := range loader {
			if path := s.firstUsable(p.versions(name)); path != "" {
				return path
			}
		}
	}
	return ""
}

// firstUsable returns the first of the paths, which are seen from the root,
// that is a library for the target.
func (s *search) firstUsable(paths []string) string {
	for _, path := range paths {
		found, err := resolve(s.root, path)
		if err == nil {
			err = s.target.check(found)
		}
		if err == nil {
			return found
		}
		if !errors.Is(err, fs.ErrNotExist) {
			s.reject(found, path, err)
		}
	}
	return ""
}

func (s *search) reject(found, path string, err error) {
	if found == "" {
		found = path
	}
	// The same file often appears in the cache and in a directory.
	if slices.ContainsFunc(s.rejected, func(r rejected) bool { return r.path == found }) {
		return
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err // the path is known
	}
	s.rejected = append(s.rejected, rejected{found, err})
}

// defaultPath is used where PATH is not set: what most systems log in with.
const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// program searches an executable file along PATH, for any machine: the kernel
// may run another machine's programs through an emulator.
func (s *search) program(name string) (string, error) {
	list := s.getenv("PATH")
	if list == "" {
		list = defaultPath
	}
	s.searched = append(s.searched, "PATH")
	for _, dir := range s.split(list, ":") {
		found, err := resolve(s.root, dir+"/"+name)
		if err != nil {
			continue
		}
		info, err := os.Stat(found)
		if err != nil || !info.Mode().IsRegular() || info.Mode()&0o111 == 0 {
			continue
		}
		_, err = readHeader(found)
		switch {
		case errors.Is(err, errNotELF):
			// Another one further down the path is not the one that would run.
			return "", fmt.Errorf("%s: %s is a script or wrapper, not an ELF file (give the path of the program it starts)",
				name, found)
		case err != nil:
			s.reject(found, found, err)
		default:
			return found, nil
		}
	}
	return "", nil
}
