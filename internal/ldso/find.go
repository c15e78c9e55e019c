// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// Options says for whom to search. The zero value and nil mean this machine.
type Options struct {
	// Root is the directory to take as "/"; empty means "/".
	Root string

	// Machine and Class are what a library must be built for. EM_NONE means
	// the machine this program was built for. Class is only looked at together
	// with Machine; ELFCLASSNONE means the usual one for the machine.
	Machine elf.Machine
	Class   elf.Class

	// Getenv answers for LD_LIBRARY_PATH and PATH. Nil means this process's
	// environment where Root is "/" (without LD_LIBRARY_PATH when the process
	// runs with changed privileges), and an empty one elsewhere: the host's
	// variables say nothing about another tree.
	Getenv func(name string) string
}

// NotFoundError says what was searched in vain. It unwraps to [fs.ErrNotExist].
type NotFoundError struct {
	Name     string     // as asked for
	Machine  string     // what a library had to be built for, such as "x86-64"
	Root     string     // the tree searched
	Searched []string   // directories and files consulted, in order
	Rejected []Rejected // what carried a matching name but would not do
}

// Rejected is a file that was passed over.
type Rejected struct {
	Path string
	Err  error
}

func (e *NotFoundError) Error() string {
	var b strings.Builder
	what := "program or library"
	if isLibraryName(e.Name) {
		what = "library"
	}
	fmt.Fprintf(&b, "%s: no such %s for %s", e.Name, what, e.Machine)
	if e.Root != "/" {
		fmt.Fprintf(&b, " under %s", e.Root)
	}
	for _, rejected := range e.Rejected {
		fmt.Fprintf(&b, "; %s: %v", rejected.Path, rejected.Err)
	}
	fmt.Fprintf(&b, " (searched %s; give a path to name another file)", strings.Join(e.Searched, ", "))
	return b.String()
}

// Unwrap makes errors.Is(err, fs.ErrNotExist) true.
func (e *NotFoundError) Unwrap() error { return fs.ErrNotExist }

// ErrPath is returned for a name with a slash: it is a path already.
var ErrPath = errors.New("a path is not searched for, only a bare name")

// ErrScript is returned when the first program of that name on PATH is not an
// ELF file: another one further down the path is not the one that would run.
var ErrScript = errors.New("a script or wrapper, not an ELF file (give the path of the program it starts)")

// Find returns the path of the library or program called name. The path starts
// with [Options.Root] and can be opened as it is. The error is a
// [*NotFoundError], or wraps [ErrPath] or [ErrScript].
func Find(name string, options *Options) (string, error) {
	if name == "" || strings.ContainsRune(name, 0) {
		return "", fmt.Errorf("library name %q: %w", name, fs.ErrInvalid)
	}
	if strings.Contains(name, "/") {
		return "", fmt.Errorf("%s: %w", name, ErrPath)
	}
	s := newSearch(name, options)
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

// isLibraryName tells a library from a program by its name alone.
func isLibraryName(name string) bool {
	return strings.HasSuffix(name, ".so") || strings.Contains(name, ".so.")
}

// search is one search and what it saw.
type search struct {
	name     string
	root     string
	target   target
	getenv   func(string) string
	searched []string
	rejected []Rejected
}

func newSearch(name string, options *Options) *search {
	if options == nil {
		options = &Options{}
	}
	s := &search{name: name, root: "/", getenv: options.Getenv}
	if options.Root != "" {
		s.root = filepath.Clean(options.Root)
	}
	s.target = newTarget(options.Machine, options.Class)
	if s.getenv == nil {
		if s.root == "/" {
			s.getenv = hostEnvironment
		} else {
			s.getenv = func(string) string { return "" }
		}
	}
	return s
}

// hostEnvironment is this process's environment as far as it may be trusted: a
// set-user-ID program must not let its caller choose what it opens.
func hostEnvironment(name string) string {
	if name == "LD_LIBRARY_PATH" && (os.Getuid() != os.Geteuid() || os.Getgid() != os.Getegid()) {
		return ""
	}
	return os.Getenv(name)
}

func (s *search) notFound() error {
	return &NotFoundError{
		Name: s.name, Machine: s.target.name, Root: s.root,
		Searched: s.searched, Rejected: s.rejected,
	}
}

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
	for _, earlier := range s.rejected {
		if earlier.Path == found {
			return
		}
	}
	var pathErr *fs.PathError
	if errors.As(err, &pathErr) {
		err = pathErr.Err // the path is told already
	}
	s.rejected = append(s.rejected, Rejected{Path: found, Err: err})
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
			return "", fmt.Errorf("%s: %s is %w", name, found, ErrScript)
		case err != nil:
			s.reject(found, found, err)
		default:
			return found, nil
		}
	}
	return "", nil
}
