// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/ldso"
)

// listFiles lists the files and libraries named on the command line. It lists
// none if one of the words was perhaps meant to pick probes: all probes of the
// files would be what nobody asked for.
func (l *lister) listFiles() (found int, failed bool) {
	if i := slices.IndexFunc(l.options.files, commandline.IsMistaken); i >= 0 {
		l.options.files = l.options.files[i : i+1]
	}
	for _, name := range l.options.files {
		n, err := l.listFile(name)
		found += n
		if err != nil {
			failed = true
			l.Warn("%v", err)
			l.printer.failed(failure{name: name, err: err})
		}
	}
	return found, failed
}

// listFile lists a file or library by its name and returns how many probes it
// listed. The error names the file.
func (l *lister) listFile(name string) (int, error) {
	path, searched, err := findFile(name)
	if err != nil {
		return 0, err
	}
	return l.listPath(path, searched || l.several())
}

// findFile returns the path of a file or library named on the command line, and
// whether it was searched for.
func findFile(name string) (path string, searched bool, err error) {
	if strings.Contains(name, "/") || commandline.IsFileHere(name) {
		return name, false, nil
	}
	path, err = ldso.Find(name)
	if errors.Is(err, fs.ErrNotExist) && !strings.Contains(name, ".so") {
		// Perhaps it was meant to pick probes.
		err = fmt.Errorf("%w; for the probes of that name, write -e %s", err, name)
	}
	return path, true, err
}

// checkRegular refuses a pipe or device before it is opened: that could block,
// or do something.
func checkRegular(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		var pathErr *fs.PathError
		if errors.As(err, &pathErr) {
			err = pathErr.Err
		}
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case info.IsDir():
		return fmt.Errorf("%s: is a directory (-r lists what is in it)", path)
	case !info.Mode().IsRegular():
		return fmt.Errorf("%s: not a regular file", path)
	}
	return nil
}
