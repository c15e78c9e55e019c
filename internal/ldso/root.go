// SPDX-License-Identifier: BSD-2-Clause

package ldso

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"
)

// maxSymlinks is the kernel's own limit.
const maxSymlinks = 40

var (
	errSymlinks   = errors.New("too many levels of symbolic links")
	errNotRegular = errors.New("not a regular file")
)

// resolve returns the path under root of what is called name inside root. For
// a root other than "/" it follows symbolic links itself: the kernel would
// take an absolute one from our own root, and ".." would lead out.
func resolve(root, name string) (string, error) {
	if root == "/" {
		return filepath.FromSlash(name), nil
	}
	done, rest, links := "/", name, 0
	for rest != "" {
		var component string
		component, rest, _ = strings.Cut(rest, "/")
		switch component {
		case "", ".":
			continue
		case "..":
			done = path.Dir(done)
			continue
		}
		next := path.Join(done, component)
		info, err := os.Lstat(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			done = next
			continue
		}
		if links++; links > maxSymlinks {
			return "", &fs.PathError{Op: "resolve", Path: filepath.Join(root, name),
				Err: errSymlinks}
		}
		link, err := os.Readlink(filepath.Join(root, next))
		if err != nil {
			return "", err
		}
		if path.IsAbs(link) {
			done = "/"
		}
		rest = link + "/" + rest
	}
	return filepath.Join(root, done), nil
}

// openRegular opens a file that is a regular one: to open a device can have
// effects, and to open a pipe would block. Should the file be exchanged for a
// pipe between the check and the opening, O_NONBLOCK still returns at once.
func openRegular(name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: name, Err: errNotRegular}
	}
	return os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}
