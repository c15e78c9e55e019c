// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/proc"
)

// mapped is a file that processes map, or that one of them would find by a name
// of the command line.
type mapped struct {
	elf     *elfnote.File
	id      procwatch.FileID
	path    string // as the process sees it
	pid     int    // the first process that maps the file
	here    string // a path that opens the file from here
	deleted bool   // nothing is at path any more, or another file
	users   []user // in the order of the scan; none if the file is not mapped
	close   func()
}

type user struct {
	process proc.Process
	path    string
	deleted bool
}

// scan gathers the files with probes that processes map, each file once.
type scan struct {
	fs       *procfs.FS
	self     int // this process as fs sees it, 0 if it does not
	cache    *procwatch.Cache
	patterns []elfnote.Pattern
	names    []*named // if there are any, no other files are wanted
	ofAll    bool     // processes: then names that are not mapped are not searched for

	files     []*mapped
	mappings  int                       // of files of all kinds
	scanned   atomic.Int64              // processes, to be shown meanwhile
	processes []proc.Process            // whose mappings have been read
	failures  []failure                 // what could not be read
	reported  map[procwatch.FileID]bool // files of which failures has an error
	blocked   map[string]int            // by owner, processes that do not answer
	left      int                       // of these, all together
}

// named is a FILE or LIBRARY of the command line that names files of processes.
type named struct {
	name     string
	isMapped bool    // by one of the processes, whether or not it has probes
	unmapped *mapped // what one of them finds by the name, if none maps it
	err      error   // why nothing was found
	pid      int     // by which process
}

func newScan(l *lister) *scan {
	s := &scan{
		fs: l.proc, cache: procwatch.NewCache(l.options.patterns...), patterns: l.options.patterns,
		ofAll:    l.options.allProcesses,
		reported: make(map[procwatch.FileID]bool), blocked: make(map[string]int),
	}
	if self, err := os.Readlink(s.fs.Root() + "/self"); err == nil {
		s.self, _ = strconv.Atoi(self)
	}
	for _, name := range l.options.files {
		s.names = append(s.names, &named{name: name})
	}
	return s
}

// patience is how long the scan of a process may wait before the others are
// listed without it. Each that is left out halves the time of the next ones:
// where one blocks on purpose, there may be many.
const patience = 500 * time.Millisecond

const mostHalvings = 3

// maxBlocked bounds how many processes of one container or user are waited for,
// each of which takes a thread.
const maxBlocked = 2

// process gathers the files of one process. If that blocks, because a file
// system withholds something, the process is left out.
func (s *scan) process(pid int) error {
	defer s.scanned.Add(1)
	blocked := &procfs.Error{PID: pid, Op: "scan", Err: proc.ErrBlocked}
	owner := func() string { // "" if the process has ended
		process, err := proc.Find(s.fs, pid)
		if err != nil {
			return ""
		}
		return process.Owner()
	}
	if len(s.blocked) > 0 && s.blocked[owner()] >= maxBlocked {
		return blocked
	}
	v := &view{scan: s}
	var err error
	wait := patience >> min(s.left, mostHalvings)
	if !deadline.One(context.Background(), wait, func() { err = v.look(pid) }, v.close) {
		s.blocked[owner()]++
		s.left++
		return blocked
	}
	if err == nil {
		s.take(v)
	}
	return err
}

// take adds what has been found of a process.
func (s *scan) take(v *view) {
	pid := v.process.PID
	for i, m := range v.meanings {
		n := s.names[i]
		n.isMapped = n.isMapped || m.isMapped
		if m.err != nil && (n.err == nil || !errors.Is(m.err, os.ErrNotExist)) {
			n.err, n.pid = m.err, pid
		}
		switch {
		case m.unmapped == nil:
		case n.unmapped == nil:
			n.unmapped = m.unmapped
		default:
			m.unmapped.close()
		}
	}
	for _, f := range v.files {
		i := slices.IndexFunc(s.files, func(other *mapped) bool { return other.id == f.id })
		if i < 0 {
			s.files = append(s.files, f)
			continue
		}
		f.close() // it is held already
		known := s.files[i]
		if last := known.users[len(known.users)-1]; last.process.PID != pid {
			known.users = append(known.users, f.users...)
		}
	}
	for _, failed := range v.failed {
		if failed.id == (procwatch.FileID{}) || !s.reported[failed.id] {
			s.failProcess(pid, failed.err)
		}
		s.reported[failed.id] = true
	}
	s.mappings += v.mappings
	if v.mappings > 0 || !s.ofAll { // with -a, threads of the kernel are not counted
		s.processes = append(s.processes, v.process)
	}
}

// failProcess notes an error of a process, or of a file that the error names.
func (s *scan) failProcess(pid int, err error) {
	of := new(procfs.Error)
	errors.As(err, &of)
	s.fail(of.Path, pid, err)
}

// fail notes what could not be read. With -a, nobody has asked for this process
// or file: that it may not be read is no error.
func (s *scan) fail(path string, pid int, err error) {
	leftOut := false
	for _, reason := range []error{proc.ErrAccess, procfs.ErrUnreachable, procfs.ErrChanged,
		proc.ErrBlocked, os.ErrPermission} {
		leftOut = leftOut || s.ofAll && errors.Is(err, reason)
	}
	s.failures = append(s.failures, failure{name: path, pid: pid, err: err, leftOut: leftOut})
}

// finish adds what was named and is not mapped, and finds out how each file can
// be opened from here: by its own path, if it is the same file here, else by
// that below the root directory of the process. If it has neither, the path of
// its mapping remains, which exists as long as the process maps the file.
func (s *scan) finish() {
	for _, n := range s.names {
		switch {
		case n.isMapped:
		case n.unmapped != nil:
			s.files = append(s.files, n.unmapped)
		case !s.ofAll && n.err != nil:
			s.failProcess(n.pid, n.err)
		}
	}
	for _, f := range s.files {
		switch {
		case s.self != 0 && s.finds(s.self, f):
			f.here = f.path
		case s.finds(f.pid, f):
			f.here = fmt.Sprintf("%s/%d/root%s", s.fs.Root(), f.pid, f.path)
		}
	}
}

func (s *scan) finds(pid int, f *mapped) bool {
	found := false
	return deadline.One(context.Background(), patience, func() {
		file, err := procwatch.OpenIn(s.fs, pid, f.path)
		if err != nil {
			return
		}
		defer file.Close()
		id, err := procwatch.IdentifyFile(file)
		found = err == nil && id.MayBe(f.id)
	}, nil) && found
}

func (s *scan) close() {
	for _, f := range s.files {
		f.close()
	}
	for _, n := range s.names {
		if n.unmapped != nil {
			n.unmapped.close() // once more if it was listed
		}
	}
}

// view is what is found of one process. That may take long, and so it changes
// nothing of the scan.
type view struct {
	scan     *scan // its options
	process  proc.Process
	mappings int
	files    []*mapped // with this process as their user; one may be there twice
	meanings []meaning // of the names
	failed   []viewError
}

// viewError is what could not be read, and of which file, if that is known.
type viewError struct {
	id  procwatch.FileID
	err error
}

// meaning is what a name means to one process.
type meaning struct {
	name     string
	byPath   bool             // mapped files are compared by their paths
	file     *os.File         // else, what the process finds by the name, nil for nothing
	id       procwatch.FileID // of file
	isMapped bool
	unmapped *mapped // file, if the process does not map it
	err      error
}

// close releases what nobody has taken.
func (v *view) close() {
	for _, f := range v.files {
		f.close()
	}
	for _, m := range v.meanings {
		if m.unmapped != nil {
			m.unmapped.close()
		}
	}
}

func (v *view) look(pid int) error {
	process, err := proc.Find(v.scan.fs, pid)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		files, err := procwatch.Files(v.scan.fs, pid)
		if err != nil && len(files) == 0 {
			return err
		}
		v.close()
		*v = view{scan: v.scan, process: process, mappings: len(files)}
		v.gather(files)
		changed := slices.ContainsFunc(v.failed,
			func(f viewError) bool { return errors.Is(f.err, procfs.ErrChanged) })
		if changed && attempt == 0 {
			continue // it was loading a library
		}
		if err != nil {
			v.failed = append(v.failed, viewError{err: err})
		}
		return nil
	}
}

// gather adds those of the files that are asked for and have probes to list.
func (v *view) gather(files []*procwatch.MappedFile) {
	for _, n := range v.scan.names {
		v.meanings = append(v.meanings, v.meaningOf(n.name, files))
	}
	for _, m := range files {
		if len(v.scan.names) > 0 && !v.isNamed(m) {
			continue
		}
		id, err := m.ID()
		if err != nil {
			v.addError(procwatch.FileID{}, err)
			continue
		}
		file, ok, err := v.scan.cache.Acquire(m)
		switch {
		case err != nil:
			v.addError(id, err)
		case ok:
			v.files = append(v.files, &mapped{elf: file.ELF(), id: id, path: m.Path,
				pid: v.process.PID, here: m.OpenedPath(), deleted: m.Deleted, close: file.Release,
				users: []user{{process: v.process, path: m.Path, deleted: m.Deleted}}})
		}
	}
	for i := range v.meanings {
		v.keepUnmapped(&v.meanings[i])
	}
}

// addError notes an error, unless the process has ended or the file is a
// device: then nothing is missing.
func (v *view) addError(id procwatch.FileID, err error) {
	if !errors.Is(err, proc.ErrGone) && !errors.Is(err, procfs.ErrNotRegular) {
		v.failed = append(v.failed, viewError{id, err})
	}
}

// meaningOf finds out what a name means to the process: the file at a path, or
// one whose path a bare name means.
func (v *view) meaningOf(name string, files []*procwatch.MappedFile) meaning {
	m := meaning{name: name}
	m.byPath = slices.ContainsFunc(files,
		func(f *procwatch.MappedFile) bool { return m.means(f.Path) })
	m.isMapped = m.byPath
	switch {
	case m.byPath:
	case strings.Contains(name, "/"):
		// It may lead to a mapped file by symbolic links: most paths by which
		// people know a library do.
		if m.file, m.err = procwatch.OpenIn(v.scan.fs, v.process.PID, name); m.err == nil {
			m.id, m.err = procwatch.IdentifyFile(m.file)
		}
	case !v.scan.ofAll:
		m.err = fmt.Errorf("%s: %w: process %d maps no file of that name "+
			"(give its path as the process sees it)", name, os.ErrNotExist, v.process.PID)
	}
	return m
}

func (m *meaning) means(filePath string) bool {
	if strings.Contains(m.name, "/") {
		return filePath == m.name
	}
	return ldso.IsNamed(filePath, m.name)
}

func (v *view) isNamed(file *procwatch.MappedFile) bool {
	is := false
	for i := range v.meanings {
		m := &v.meanings[i]
		if m.byPath {
			is = is || m.means(file.Path)
		} else if m.file != nil {
			id, err := file.ID()
			if err == nil && id.MayBe(m.id) {
				m.isMapped, is = true, true
			}
		}
	}
	return is
}

// keepUnmapped keeps the file that a name leads to if it is not mapped, and
// closes it otherwise.
func (v *view) keepUnmapped(m *meaning) {
	if m.file == nil {
		return
	}
	var file *elfnote.File
	if !m.isMapped && !v.scan.ofAll && m.err == nil {
		file, m.err = elfnote.NewFile(m.file)
	}
	if file == nil {
		m.file.Close()
		return
	}
	here := m.file.Name()
	m.unmapped = &mapped{elf: file, id: m.id, pid: v.process.PID, here: here,
		path:  strings.TrimPrefix(here, fmt.Sprintf("%s/%d/root", v.scan.fs.Root(), v.process.PID)),
		close: func() { m.file.Close() }}
}
