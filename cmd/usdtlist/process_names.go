// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/proc"
)

// named is a FILE or LIBRARY of the command line that names files of processes.
type named struct {
	name     string
	isMapped bool    // by one of the processes, whether or not it has probes
	isFound  bool    // in the file system of one, though it is not mapped
	unmapped *mapped // what was found so
	isKnown  bool    // another scan has unmapped
	err      error   // why nothing was found
	pid      int     // by which process
}

// namedFile is what a name means to one process.
type namedFile struct {
	*named
	byName bool        // mapped files are compared by their paths
	found  *os.File    // else, what is at that path
	id     proc.FileID // of found
}

// isNamed reports whether a mapped file is one of those named.
func isNamed(names []namedFile, m *proc.MappedFile) bool {
	is := false
	for _, n := range names {
		if n.byName {
			is = is || n.means(m.Path)
		} else if n.found != nil {
			id, err := m.ID()
			if err == nil && id.MayBe(n.id) {
				n.isMapped, is = true, true
			}
		}
	}
	return is
}

// namesIn finds out what the names mean to a process.
func (s *scan) namesIn(pid int, files []*proc.MappedFile) []namedFile {
	var names []namedFile
	for _, n := range s.names {
		file := namedFile{named: n}
		for _, m := range files {
			file.byName = file.byName || n.means(m.Path)
		}
		n.isMapped = n.isMapped || file.byName
		// A path may lead to a mapped file by symbolic links: most that people
		// know a library by do. What a bare name leads to matters only where a
		// file that is not mapped is listed.
		if !file.byName && (!s.ofAll || strings.Contains(n.name, "/")) {
			file.find(s.fs, pid)
		}
		names = append(names, file)
	}
	return names
}

// means reports whether the name is the path of a mapped file, or a bare name
// that means it.
func (n *named) means(filePath string) bool {
	if strings.Contains(n.name, "/") {
		return filePath == n.name
	}
	return ldso.IsNamed(filePath, n.name)
}

// find opens what a process would find by the name.
func (n *namedFile) find(fs *proc.FS, pid int) {
	inside, err := n.name, error(nil)
	if !strings.Contains(n.name, "/") {
		if inside, err = ldso.FindInProcess(fmt.Sprintf("%s/%d", fs.Root(), pid),
			n.name); err != nil {
			err = fmt.Errorf("process %d: %w", pid, err)
		}
	}
	if err == nil {
		n.found, err = fs.OpenIn(pid, inside)
	}
	if err == nil {
		n.id, err = proc.IdentifyFile(n.found)
	}
	if err != nil && (n.err == nil || !errors.Is(err, os.ErrNotExist)) {
		n.err, n.pid = err, pid
	}
}

// addUnmapped keeps the files that names lead to, if these mean no mapped file,
// and closes the others.
func (s *scan) addUnmapped(pid int, names []namedFile) {
	for _, n := range names {
		if n.found == nil {
			continue
		}
		if n.isMapped || s.ofAll || n.isKnown || n.unmapped != nil {
			n.found.Close()
			continue
		}
		file, err := elfnote.NewFile(n.found)
		if err != nil {
			n.found.Close()
			n.err, n.pid = err, pid
			continue
		}
		here := n.found.Name()
		n.unmapped = &mapped{
			elf: file, id: n.id, pid: pid, path: strings.TrimPrefix(here,
				fmt.Sprintf("%s/%d/root", s.fs.Root(), pid)), here: here,
			close: func() { n.found.Close() },
		}
	}
}
