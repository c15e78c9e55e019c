// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
)

// walker finds the files that are to be scanned: those in directories, and
// those of lists. It gives them in batches, in order.
type walker struct {
	options *options
	give    func(*batch)
	current *batch
}

// A batch is files that are scanned together.
type batch struct {
	paths   []string
	results []scanned     // in the order of paths, of those with something to say
	done    chan struct{} // closed when the results are there
}

// batchSize is how many files are scanned together: many enough that passing
// them on costs nothing beside opening them, and few enough that all processors
// have something to do to the end.
const batchSize = 128

// scanned is a file with something to list, or what could not be read.
type scanned struct {
	path     string
	err      error // nil for a file with something to list
	expected bool  // the file was asked for by name
}

func (w *walker) walk() {
	for _, name := range w.options.files {
		w.named(name)
	}
	for _, list := range w.options.filesFrom {
		if err := w.list(list); err != nil {
			w.fail(scanned{path: list, err: fmt.Errorf("--files-from: %w", err), expected: true})
		}
	}
	w.flush()
}

// named walks a directory, or adds a file or library by its name.
func (w *walker) named(name string) {
	info, err := os.Stat(name)
	switch {
	case err == nil && info.IsDir() && w.options.recursive:
		w.directory(name)
		return
	case err != nil && !strings.Contains(name, "/"):
		if found, _, e := findFile(name); e == nil {
			w.add(found)
			return
		}
		fallthrough
	case err != nil:
		err = fmt.Errorf("%s: %w", name, commandline.WithoutPath(err))
		w.fail(scanned{path: name, err: err, expected: true})
	case info.IsDir():
		w.fail(scanned{path: name,
			err: fmt.Errorf("%s: is a directory (-r lists what is in it)", name), expected: true})
	default:
		w.add(name)
	}
}

// list adds the files that a list names: one on each line, or if there is a NUL
// byte, each up to one.
func (w *walker) list(name string) error {
	file := os.Stdin
	if name != "-" {
		var err error
		if file, err = os.Open(name); err != nil {
			return err
		}
		defer file.Close()
	}
	reader := bufio.NewReaderSize(file, 64<<10)
	separator := byte('\n')
	if begin, _ := reader.Peek(reader.Size()); bytes.IndexByte(begin, 0) >= 0 {
		separator = 0
	}
	for {
		path, err := reader.ReadString(separator)
		if path = strings.TrimSuffix(path, string(separator)); path != "" {
			w.listed(path)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(path) > maxPath:
			return fmt.Errorf("a line of more than %d bytes is no path", maxPath)
		}
	}
}

// maxPath is more than any path has that can be opened (PATH_MAX).
const maxPath = 4096

// listed adds what a list names. Lists are made by other tools, and name
// directories beside what is in them.
func (w *walker) listed(path string) {
	switch info, err := os.Stat(path); {
	case err != nil:
		err = fmt.Errorf("%s: %w", path, commandline.WithoutPath(err))
		w.fail(scanned{path: path, err: err})
	case info.Mode().IsRegular():
		w.add(path)
	case info.IsDir() && w.options.recursive:
		w.directory(path)
	}
}

// directory walks a directory. Symbolic links in it are not followed: what they
// lead to is listed where it is, if that is below the directory. File systems
// that the kernel makes up are left out: to read them can block, or do
// something.
func (w *walker) directory(root string) {
	root = strings.TrimSuffix(root, "/") + "/" // it may be a symbolic link itself
	isAsked := isMadeUp(root)
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", path, commandline.WithoutPath(err))
			w.fail(scanned{path: path, err: err})
		case entry.Type().IsRegular():
			w.add(path)
		case entry.IsDir() && !isAsked && isMadeUp(path):
			return fs.SkipDir
		}
		return nil
	})
}

func (w *walker) add(path string) {
	if w.current == nil {
		w.current = &batch{done: make(chan struct{})}
	}
	w.current.paths = append(w.current.paths, path)
	if len(w.current.paths) == batchSize {
		w.flush()
	}
}

// fail passes on what cannot be read, after what has been found so far.
func (w *walker) fail(r scanned) {
	w.flush()
	b := &batch{results: []scanned{r}, done: make(chan struct{})}
	w.give(b)
}

func (w *walker) flush() {
	if w.current != nil {
		w.give(w.current)
		w.current = nil
	}
}

// madeUp are file systems whose files the kernel makes up, by the numbers that
// statfs(2) has for them.
var madeUp = []int64{
	0x9fa0,     // proc
	0x62656572, // sysfs
	0x64626720, // debugfs
	0x74726163, // tracefs
	0x27e0eb,   // cgroup
	0x63677270, // cgroup2
	0xcafe4a11, // bpf
	0x73636673, // securityfs
	0x62656570, // configfs
	0x65735543, // fusectl
	0x6165676c, // pstore
	0x19800202, // mqueue
	0x42494e4d, // binfmt_misc
	0x1cd1,     // devpts
	0xf97cff8c, // selinuxfs
	0xde5e81e4, // efivarfs
	0x958458f6, // hugetlbfs
}

func isMadeUpType(kind int64) bool { return slices.Contains(madeUp, kind&0xffffffff) }
