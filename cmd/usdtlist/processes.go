// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/ldso"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/internal/sys"
	"github.com/gousdt/gousdt/proc"
)

// listProcesses lists the files that processes map. It returns how many probes
// it listed, whether something could not be read, and what has been read, "" if
// nothing was.
func (l *lister) listProcesses() (found int, failed bool, where string) {
	s := newScan(l)
	defer s.close()
	done := l.Progress(func() string {
		return fmt.Sprintf("%d processes scanned", s.scanned.Load())
	})
	if l.options.allProcesses {
		s.all()
	} else {
		s.some(l.options.pids)
	}
	s.finish()
	done()
	if l.options.allProcesses {
		slices.SortStableFunc(s.files,
			func(a, b *mapped) int { return cmp.Compare(a.path, b.path) })
	}
	showUsers := l.options.allProcesses || len(l.options.pids) > 1
	for _, f := range s.files {
		n, err := l.listOpened(&listing{path: f.path, heading: true, mapped: f,
			showUsers: showUsers, elf: f.elf})
		found += n
		if err != nil {
			s.fail(f.path, f.pid, err)
		}
	}
	l.warnFailures(s.failures)
	for _, n := range s.names {
		if !n.isMapped && s.ofAll {
			l.Warn("no process maps %s", n.name)
		}
	}
	isError := func(f failure) bool { return !f.leftOut }
	return found, slices.ContainsFunc(s.failures, isError), s.where()
}

// warnOthers names a file that the processes map and that has probes to list,
// where the files that are named have none: java is a launcher, whose probes
// are in libjvm.so.
func (l *lister) warnOthers() {
	s := newScan(l)
	defer s.close()
	s.names = nil
	s.some(l.options.pids)
	if len(s.files) > 0 {
		f := s.files[0]
		l.Warn("process %d maps %s, which has probes to list: name that, or no file", f.pid, f.path)
	}
}

func (s *scan) all() {
	pids, err := s.fs.PIDs()
	if err != nil {
		s.fail("", 0, err)
		return
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if pid == s.self {
			continue // this command itself
		}
		if err := s.process(pid); err != nil && !errors.Is(err, proc.ErrGone) {
			s.failProcess(pid, err)
		}
	}
	s.leaveOutOthers()
	// Every PID namespace has a process 1.
	if hidden := s.hidden(); hidden != "" && pids[0] != 1 {
		s.failures = append(s.failures,
			failure{err: fmt.Errorf("processes that are %s", hidden), leftOut: true})
	}
}

// leaveOutOthers says so in a PID namespace from which others are not seen.
func (s *scan) leaveOutOthers() {
	if !sys.IsInitialPIDNamespace() && procfs.HasOwnPIDs(s.fs.Root()) {
		s.failures = append(s.failures, failure{leftOut: true,
			err: errors.New("processes outside of this PID namespace, " +
				"such as that of a container (run it on the host, " +
				"or in a container with the host's PIDs: --pid=host)")})
	}
}

func (s *scan) some(pids []int) {
	for _, pid := range pids {
		err := s.process(pid)
		if errors.Is(err, proc.ErrGone) {
			or := ""
			s.leaveOutOthers()
			if hidden := s.hidden(); hidden != "" {
				or = ", or it is " + hidden
			}
			err = fmt.Errorf("process %d: no such process%s", pid, or)
		}
		if err != nil {
			s.failProcess(pid, err)
		}
	}
}

// hidden says how the proc file system hides processes, "" if it does not.
func (s *scan) hidden() string {
	hide := hidePID(s.fs.Root())
	if hide == "" {
		return ""
	}
	return fmt.Sprintf("hidden by hidepid=%s of %s (run as root or with CAP_SYS_PTRACE)", hide,
		s.fs.Root())
}

// where says where there were no probes, for the case that there were none.
func (s *scan) where() string {
	whose := fmt.Sprintf("%d processes", len(s.processes))
	if len(s.processes) == 1 {
		whose = "process " + s.processes[0].String()
	}
	var names []string
	for _, n := range s.names {
		if n.isMapped || n.unmapped != nil {
			names = append(names, n.name)
		}
	}
	switch {
	case len(s.processes) == 0 || len(s.names) > 0 && len(names) == 0:
		return ""
	case len(names) > 0:
		return fmt.Sprintf("%s of %s", strings.Join(names, ", "), whose)
	case s.mappings == 0:
		return whose + ", which maps no files" // threads of the kernel, say
	}
	return "the files of " + whose
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

// maxMounts bounds what is read of a mount table. Container hosts have
// thousands of mounts of 200 bytes.
const maxMounts = 8 << 20

// hidePID returns how the proc file system at root hides processes: "noaccess"
// (1), "invisible" (2) or "ptraceable" (4), as mount options spell it, and ""
// if it does not, or if that cannot be read. A caller with CAP_SYS_PTRACE, or
// in the group that the mount option gid= names, sees all the same.
func hidePID(root string) string {
	file, err := os.Open(root + "/self/mounts")
	if err != nil {
		return ""
	}
	defer file.Close()
	mounts, err := io.ReadAll(io.LimitReader(file, maxMounts))
	if err != nil {
		return ""
	}
	// Blanks and the like are octal there.
	root = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(root)
	hide := ""
	for line := range strings.Lines(string(mounts)) { // later ones cover the earlier
		fields := strings.Fields(line)
		if len(fields) < 4 || fields[1] != root || fields[2] != "proc" {
			continue
		}
		hide = ""
		for option := range strings.SplitSeq(fields[3], ",") {
			if value, ok := strings.CutPrefix(option, "hidepid="); ok {
				hide = value
			}
		}
	}
	// They are numbers before Linux 5.8.
	numbers := map[string]string{"0": "", "off": "", "1": "noaccess", "2": "invisible",
		"4": "ptraceable"}
	if name, known := numbers[hide]; known {
		return name
	}
	return hide
}

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
	reported  map[procwatch.FileID]bool // files that failures has an error of
	blocked   map[string]int            // by owner, processes that do not answer
	left      int                       // of these, all together
}

// named is a FILE or LIBRARY of the command line that names files of processes.
type named struct {
	name     string
	isMapped bool    // by one of the processes, whether or not it has probes
	unmapped *mapped // what one of them finds by the name, if none maps it
	err      error   // why nothing was found
	pid      int     // the process that err is about
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

// fail notes what could not be read. With -a, neither the process nor the file
// was named: that it may not be read is no error.
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

// viewError is why something could not be read, and its file, if that is known.
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

// close releases files that the scan has not taken.
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
		// It may lead to a mapped file by symbolic links: most paths of
		// libraries that people know do.
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
