// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/usdt/proc"
)

// mapped is a file that processes map, or that one of them would find by a name
// of the command line.
type mapped struct {
	elf     *elfnote.File
	id      procfs.FileID
	path    string                   // as the process sees it
	pid     int                      // the first process that maps the file
	here    string                   // a path that opens the file from here
	deleted bool                     // nothing is at path any more, or another file
	users   []*procwatch.ProcessFile // by PID; none if the file is not mapped
}

// scan gathers the files with probes that processes map, each file once.
type scan struct {
	fs        procfs.FS
	self      int             // this process as fs sees it, 0 if it does not
	ofAll     bool            // processes: then names that are not mapped are not searched for
	processes []proc.Process  // of -p, that could be scanned
	files     []*mapped       // that are asked for
	found     map[string]bool // names that at least one process has a file of
	failures  []failure
	calls     deadline.Unanswered
}

// listProcesses lists the files that processes map. It returns how many probes
// it listed, whether something could not be read, and where it has read, "" if
// nowhere.
func (l *lister) listProcesses() (found int, failed bool, where string) {
	s := &scan{fs: l.proc, ofAll: l.options.allProcesses, found: make(map[string]bool)}
	if self, err := os.Readlink(s.fs.Root() + "/self"); err == nil {
		s.self, _ = strconv.Atoi(self)
	}
	var scanned atomic.Int64
	var errs []error // of -a
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{FS: s.fs,
		Filter:  func(p proc.Process) bool { scanned.Add(1); return !s.ofAll || p.PID != s.self },
		Handler: func(c *procwatch.Changes) { errs = append(errs, c.Errors...) },
	}, l.options.patterns...)
	done := l.Progress(func() string { return fmt.Sprintf("%d processes scanned", scanned.Load()) })
	if s.ofAll {
		s.all(watcher)
	} else {
		s.some(watcher, l.options.pids)
	}
	pairs := watcher.ProcessFiles()
	for _, pair := range pairs {
		pair.File.Hold()
		defer pair.File.Release()
	}
	watcher.Close() // the handler may be called until then
	if s.ofAll {
		for _, err := range errs {
			s.fail("", 0, err)
		}
	}
	for _, pair := range pairs {
		s.add(pair, l.options.files)
	}
	for _, name := range l.options.files {
		if !s.ofAll && !s.found[name] {
			defer s.findUnmapped(name)()
		}
	}
	s.setPathsHere()
	done()
	if s.ofAll {
		slices.SortStableFunc(s.files,
			func(a, b *mapped) int { return cmp.Compare(a.path, b.path) })
	}
	for _, f := range s.files {
		n, err := l.listOpened(&listing{path: f.path, heading: true, mapped: f,
			showUsers: s.ofAll || len(l.options.pids) > 1, elf: f.elf})
		found += n
		if err != nil {
			s.fail(f.path, f.pid, err)
		}
	}
	for i := range s.failures {
		f := &s.failures[i] // a library that was replaced, say: what was asked for is there
		f.leftOut = f.leftOut || found > 0 && errors.Is(f.err, procfs.ErrUnreachable)
	}
	l.warnFailures(s.failures)
	var names []string
	for _, name := range l.options.files {
		if s.found[name] {
			names = append(names, name)
		} else if s.ofAll {
			l.Warn("no process maps %s, or it has no probes to list", name)
		}
	}
	if found == 0 && len(names) > 0 && len(pairs) > 0 {
		// java is a launcher, whose probes are in libjvm.so.
		l.elsewhere = fmt.Sprintf("process %d maps %s, which has probes to list: "+
			"name that, or no file", pairs[0].Process.PID, pairs[0].Path)
	}
	isError := func(f failure) bool { return !f.leftOut }
	return found, slices.ContainsFunc(s.failures, isError), s.where(names, len(l.options.files))
}

// where says what was searched: the files of these names, of so many that were
// given, or all of the processes. It is "" if nothing was.
func (s *scan) where(names []string, given int) string {
	whose := "any process"
	switch {
	case len(s.processes) == 1:
		whose = "process " + s.processes[0].String()
	case !s.ofAll:
		whose = fmt.Sprintf("%d processes", len(s.processes))
	}
	switch {
	case !s.ofAll && len(s.processes) == 0 || given > len(names) && len(names) == 0:
		return ""
	case len(names) > 0:
		return strings.Join(names, ", ") + " of " + whose
	}
	return "the files of " + whose
}

func (s *scan) all(watcher *procwatch.Watcher) {
	if err := watcher.Sync(context.Background(), 0); err != nil {
		s.fail("", 0, err)
		return
	}
	s.leaveOutOthers()
	if hidden := s.hidden(); hidden != "" {
		s.failures = append(s.failures,
			failure{err: fmt.Errorf("processes that are %s", hidden), leftOut: true})
	}
}

// leaveOutOthers says so in a PID namespace from which others are not seen.
func (s *scan) leaveOutOthers() {
	if commandline.IsInContainer(s.fs.Root()) {
		s.failures = append(s.failures, failure{leftOut: true,
			err: errors.New("processes outside of this PID namespace, " +
				"such as that of a container (run it on the host, " +
				"or in a container with the host's PIDs: --pid=host)")})
	}
}

func (s *scan) some(watcher *procwatch.Watcher, pids []int) {
	for _, pid := range pids {
		process, err := proc.Find(proc.FS(s.fs.Root()), pid)
		if err == nil {
			if err = watcher.Sync(context.Background(), pid); errors.Is(err, procfs.ErrChanged) {
				err = watcher.Sync(context.Background(), pid) // it was loading a library
			}
			if !errors.Is(err, proc.ErrAccess) && !errors.Is(err, proc.ErrBlocked) {
				s.processes = append(s.processes, process)
			}
		}
		if errors.Is(err, proc.ErrGone) {
			or := ""
			s.leaveOutOthers()
			if hidden := s.hidden(); hidden != "" {
				or = ", or it is " + hidden
			}
			err = fmt.Errorf("process %d: no such process%s", pid, or)
		}
		if several, ok := err.(interface{ Unwrap() []error }); ok {
			for _, err := range several.Unwrap() {
				s.fail("", pid, err)
			}
		} else if err != nil {
			s.fail("", pid, err)
		}
	}
}

// hidden says how the proc file system hides processes, "" if it does not.
// Every PID namespace has a process 1.
func (s *scan) hidden() string {
	if _, err := proc.Find(proc.FS(s.fs.Root()), 1); !errors.Is(err, proc.ErrGone) {
		return ""
	}
	return fmt.Sprintf("hidden by the option hidepid of %s (run as root or with CAP_SYS_PTRACE)",
		s.fs.Root())
}

// add adds a file of a process, if it has one of the names or none are given.
func (s *scan) add(pair *procwatch.ProcessFile, names []string) {
	wanted := len(names) == 0
	for _, name := range names {
		is := means(name, pair.Path)
		if !is && strings.Contains(name, "/") {
			// The name may lead there by symbolic links, as most well-known
			// paths of libraries do.
			file, id, err := s.open(pair.Process.PID, name)
			if is = err == nil && id.MayBe(pair.File.ID()); err == nil {
				file.Close()
			}
		}
		if is {
			wanted, s.found[name] = true, true
		}
	}
	if !wanted {
		return
	}
	id := pair.File.ID()
	i := slices.IndexFunc(s.files, func(f *mapped) bool { return f.id == id })
	if i < 0 {
		i = len(s.files)
		s.files = append(s.files, &mapped{elf: pair.File.ELF(), id: id, path: pair.Path,
			pid: pair.Process.PID, here: pair.OpenedPath, deleted: pair.Deleted})
	}
	s.files[i].users = append(s.files[i].users, pair)
}

// means reports whether a name of the command line is that of a file that a
// process maps.
func means(name, path string) bool {
	if strings.Contains(name, "/") {
		return path == name
	}
	return procfs.IsNamed(path, name)
}

// findUnmapped adds the file that a process of -p finds by a path although it
// does not map it, and says why there is none. It returns what closes the file.
func (s *scan) findUnmapped(name string) (done func()) {
	done = func() {}
	var failed error
	for i := range s.processes {
		p := &s.processes[i]
		files, _ := procfs.Files(s.fs, p.PID) // if that fails, it has been said
		if slices.ContainsFunc(files,
			func(f *procfs.MappedFile) bool { return means(name, f.Path) }) {
			s.found[name] = true // and has no probes
			return done
		}
		if !strings.Contains(name, "/") {
			failed = cmp.Or(failed, fmt.Errorf("%s: process %d maps no file of that name "+
				"(give its path as the process sees it)", name, p.PID))
			continue
		}
		file, id, err := s.open(p.PID, name)
		if err == nil {
			var elf *elfnote.File
			if elf, err = elfnote.NewFile(file); err == nil {
				s.found[name] = true
				here := file.Name()
				s.files = append(s.files, &mapped{elf: elf, id: id, pid: p.PID, here: here,
					path: strings.TrimPrefix(here, fmt.Sprintf("%s/%d/root", s.fs.Root(), p.PID))})
				return func() { file.Close() }
			}
			file.Close()
		}
		failed = err
	}
	if failed != nil {
		s.fail("", s.processes[len(s.processes)-1].PID, failed)
	}
	return done
}

// setPathsHere finds out how each file can be opened from here: by its own
// path, if it is the same file here, else by that below the root directory of
// the process. If it has neither, the path of its mapping remains, which exists
// as long as the process maps the file.
func (s *scan) setPathsHere() {
	finds := func(pid int, f *mapped) bool {
		file, id, err := s.open(pid, f.path)
		if err == nil {
			file.Close()
		}
		return err == nil && id.MayBe(f.id)
	}
	for _, f := range s.files {
		switch {
		case s.self != 0 && finds(s.self, f):
			f.here = f.path
		case finds(f.pid, f):
			f.here = fmt.Sprintf("%s/%d/root%s", s.fs.Root(), f.pid, f.path)
		}
	}
}

// open opens the file that a process finds at a path.
func (s *scan) open(pid int, path string) (file *os.File, id procfs.FileID, err error) {
	var opened *os.File
	var openedID procfs.Identity
	var failed error
	returned := s.calls.Ask(deadline.OwnerOf(s.fs.Root(), pid), deadline.File, 1, func(int) {
		if opened, failed = procfs.OpenIn(s.fs, pid, path); failed == nil {
			openedID, failed = procfs.IdentifyFile(opened)
		}
	}, func(int) { opened.Close() })
	switch {
	case len(returned) == 0:
		return nil, id, &procfs.Error{PID: pid, Op: "open", Path: path, Err: proc.ErrBlocked}
	case failed != nil:
		opened.Close() // if it is nil, nothing happens
		return nil, id, failed
	}
	return opened, openedID.FileID, nil
}

// fail notes what could not be read of a process, or of a file that the error
// names. With -a, neither was named: that it may not be read is no error.
func (s *scan) fail(path string, pid int, err error) {
	of := new(procfs.Error)
	if errors.As(err, &of) {
		path, pid = cmp.Or(path, of.Path), cmp.Or(pid, of.PID)
	}
	leftOut := false
	for _, reason := range []error{proc.ErrAccess, procfs.ErrUnreachable, procfs.ErrChanged,
		proc.ErrBlocked, procwatch.ErrPostponed, os.ErrPermission} {
		leftOut = leftOut || s.ofAll && errors.Is(err, reason)
	}
	s.failures = append(s.failures, failure{name: path, pid: pid, err: err, leftOut: leftOut})
}

// warnFailures says what could not be read. Without privileges those are most
// processes, for one reason.
func (l *lister) warnFailures(failures []failure) {
	var denied []failure
	for _, f := range failures {
		l.failed(f)
		switch {
		case f.leftOut && f.name == "" && errors.Is(f.err, proc.ErrAccess):
			denied = append(denied, f)
		case f.leftOut:
			l.WarnOf("left out: "+commandline.Cause(f.err), "left out: %v", f.err)
		default:
			l.WarnOf("not listed: "+commandline.Cause(f.err), "%v", f.err)
		}
	}
	switch len(denied) {
	case 0:
	case 1:
		l.Warn("left out: %v", denied[0].err)
	default:
		l.Warn("left out: %d processes: %v", len(denied), proc.ErrAccess)
	}
}
