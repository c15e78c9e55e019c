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

// walker gives the files to scan, in order: those named, with the files in
// directories, and then those of lists.
type walker struct {
	options *options
	give    func(scanned)
}

// scanned is a file to scan, after the scan one with something to list, or else
// an error.
type scanned struct {
	path     string
	err      error
	expected bool // the error is about a file that was asked for by name
}

func (w *walker) walk() {
	for _, name := range w.options.files {
		w.named(name, true)
	}
	for _, list := range w.options.filesFrom {
		if err := w.list(list); err != nil {
			w.give(scanned{path: list, err: fmt.Errorf("--files-from: %w", err), expected: true})
		}
	}
}

// named walks a directory, or gives a file or library by its name. Pipes and
// devices are skipped: opening one could block, or have effects. A name of a
// list is not asked for: tools such as find list directories beside the files
// in them, which are skipped without -r.
func (w *walker) named(name string, isAsked bool) {
	info, err := os.Stat(name)
	if err != nil && isAsked && !strings.Contains(name, "/") {
		if found, _, e := findFile(name); e == nil {
			w.give(scanned{path: found})
			return
		}
	}
	switch {
	case err != nil:
		err = fmt.Errorf("%s: %w", name, commandline.WithoutPath(err))
		w.give(scanned{path: name, err: err, expected: isAsked})
	case info.IsDir() && w.options.recursive:
		w.directory(name)
	case info.IsDir() && isAsked:
		w.give(scanned{path: name,
			err: fmt.Errorf("%s: is a directory (-r lists what is in it)", name), expected: true})
	case info.Mode().IsRegular():
		w.give(scanned{path: name})
	}
}

// list gives the files of a list. They end in a NUL byte if one is among the
// first 64 KiB, else in a newline.
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
		line, err := reader.ReadSlice(separator) // of at most the reader's size
		path := strings.TrimSuffix(string(line), string(separator))
		switch {
		case len(path) > maxPath:
			return fmt.Errorf("%s: a line of more than %d bytes is not a path", name, maxPath)
		case path != "":
			w.named(path, false)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
	}
}

// maxPath is PATH_MAX of Linux: longer paths cannot be opened.
const maxPath = 4096

// directory walks a directory. Symbolic links in it are not followed: a target
// below the directory is listed where it is. File systems that the kernel makes
// up are skipped unless root is on one: reading their files can block, or have
// effects.
func (w *walker) directory(root string) {
	root = strings.TrimSuffix(root, "/") + "/" // it may be a symbolic link itself
	isAsked := isMadeUp(root)
	_ = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			err = fmt.Errorf("%s: %w", path, commandline.WithoutPath(err))
			w.give(scanned{path: path, err: err})
		case entry.Type().IsRegular():
			w.give(scanned{path: path})
		case entry.IsDir() && !isAsked && isMadeUp(path):
			return fs.SkipDir
		}
		return nil
	})
}

// madeUp has the types, as of statfs(2), of file systems whose files the kernel
// makes up.
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
