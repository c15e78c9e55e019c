// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
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

// user is a process that maps a file.
type user struct {
	process proc.Process
	path    string
	deleted bool
}

// scan gathers the files with probes that processes map, each file once.
type scan struct {
	fs        *procfs.FS
	self      int // this process as fs sees it, 0 if it does not
	cache     *procwatch.Cache
	patterns  []elfnote.Pattern
	names     []*named // if there are any, no other files are wanted
	ofAll     bool     // processes: then names that are not mapped are not searched for
	files     []*mapped
	mappings  int                       // of files of all kinds
	scanned   atomic.Int64              // processes, for who waits
	processes []proc.Process            // whose mappings have been read
	failures  []failure                 // what could not be read
	reported  map[procwatch.FileID]bool // files whose contents are what is wrong
	blocked   map[string]int            // by owner, processes that do not answer
	left      int                       // of these, all together
}

func newScan(l *lister) *scan {
	s := &scan{
		fs:       l.proc,
		cache:    procwatch.NewCache(),
		patterns: l.options.patterns,
		ofAll:    l.options.allProcesses,
		reported: make(map[procwatch.FileID]bool),
	}
	if self, err := os.Readlink(s.fs.Root() + "/self"); err == nil {
		s.self, _ = strconv.Atoi(self)
	}
	for _, name := range l.options.files {
		s.names = append(s.names, &named{name: name})
	}
	return s
}

// process gathers the files of one process. If that blocks, because a file
// system withholds something, the process is left out.
func (s *scan) process(pid int) error {
	defer s.scanned.Add(1)
	if len(s.blocked) > 0 && s.blocked[s.owner(pid)] >= maxBlocked {
		return blockedError(pid)
	}
	part := s.part()
	var err error
	wait := patience >> min(s.left, mostHalvings)
	if !deadline.One(context.Background(), wait, func() { err = part.gatherProcess(pid) },
		part.close) {
		if s.blocked == nil {
			s.blocked = make(map[string]int)
		}
		s.blocked[s.owner(pid)]++
		s.left++
		return blockedError(pid)
	}
	s.add(part)
	return err
}

// owner returns who is to answer for a process, "" if that has ended.
func (s *scan) owner(pid int) string {
	process, err := proc.Find(s.fs, pid)
	if err != nil {
		return ""
	}
	return process.Owner()
}

// patience is how long the scan of a process may wait before the others are
// listed without it. Each that is left out halves the time of the next ones:
// where one blocks on purpose, there may be many.
const patience = 500 * time.Millisecond

// mostHalvings is how often the patience is halved.
const mostHalvings = 3

// maxBlocked bounds how many processes of one container or user are waited for,
// each of which takes a thread.
const maxBlocked = 2

func blockedError(pid int) error {
	return &procfs.Error{PID: pid, Op: "scan", Err: proc.ErrBlocked}
}

// part returns a scan for one process, which shares nothing with s that
// changes.
func (s *scan) part() *scan {
	part := &scan{
		fs: s.fs, self: s.self, cache: s.cache, patterns: s.patterns, ofAll: s.ofAll,
		reported: maps.Clone(s.reported),
	}
	for _, n := range s.names {
		known := *n
		known.isMapped, known.unmapped, known.isKnown = false, nil, n.unmapped != nil
		part.names = append(part.names, &known)
	}
	return part
}

// add takes what the scan of one process has found.
func (s *scan) add(part *scan) {
	for i, n := range part.names {
		to := s.names[i]
		to.isMapped = to.isMapped || n.isMapped
		to.err, to.pid = n.err, n.pid
		switch {
		case n.unmapped == nil:
		case to.unmapped == nil:
			to.unmapped = n.unmapped
		default:
			n.unmapped.close()
		}
	}
	for _, f := range part.files {
		i := slices.IndexFunc(s.files, func(other *mapped) bool { return other.id == f.id })
		if i < 0 {
			s.files = append(s.files, f)
			continue
		}
		f.close() // it is held already
		s.files[i].users = append(s.files[i].users, f.users...)
	}
	for id := range part.reported {
		s.reported[id] = true
	}
	s.failures = append(s.failures, part.failures...)
	s.mappings += part.mappings
	s.processes = append(s.processes, part.processes...)
}

// gatherProcess is process for a scan of that process alone.
func (s *scan) gatherProcess(pid int) error {
	process, err := proc.Find(s.fs, pid)
	if err != nil {
		return err
	}
	for attempt := 0; ; attempt++ {
		files, err := procwatch.Files(s.fs, pid)
		if err != nil && len(files) == 0 {
			return err
		}
		failed := s.gather(process, files)
		changed := slices.ContainsFunc(failed,
			func(err error) bool { return errors.Is(err, procfs.ErrChanged) })
		if changed && attempt == 0 {
			continue // it was loading a library
		}
		if err != nil {
			failed = append(failed, err)
		}
		for _, err := range failed {
			s.failProcess(pid, err)
		}
		s.mappings += len(files)
		if len(files) > 0 || !s.ofAll { // with -a, threads of the kernel are not counted
			s.processes = append(s.processes, process)
		}
		return nil
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

// gather adds those of a process's files that are asked for and have probes to
// list, and returns what could not be read. A file that has been added is not
// added again.
func (s *scan) gather(process proc.Process, files []*procwatch.MappedFile) (failed []error) {
	names := s.namesIn(process.PID, files)
	defer s.addUnmapped(process.PID, names)
	for _, m := range files {
		if len(s.names) > 0 && !isNamed(names, m) {
			continue
		}
		err := s.addFile(process, m)
		if errors.Is(err, proc.ErrGone) || errors.Is(err, procfs.ErrNotRegular) {
			continue // the process has ended, or it is a device: nothing is missing
		}
		if err != nil {
			failed = append(failed, err)
		}
	}
	return failed
}

// addFile notes that a process maps a file.
func (s *scan) addFile(process proc.Process, m *procwatch.MappedFile) error {
	id, err := m.ID()
	if err != nil {
		return err
	}
	file, ok, err := s.cache.Acquire(m, s.patterns...)
	if err != nil {
		if s.reported[id] {
			return nil
		}
		s.reported[id] = true
		return err
	}
	if !ok {
		return nil
	}
	u := user{process: process, path: m.Path, deleted: m.Deleted}
	i := slices.IndexFunc(s.files, func(f *mapped) bool { return f.id == id })
	if i < 0 {
		s.files = append(s.files, &mapped{
			elf:     file.ELF(),
			id:      id,
			path:    m.Path,
			pid:     process.PID,
			here:    m.OpenedPath(),
			deleted: m.Deleted,
			users:   []user{u}, close: file.Release,
		})
		return nil
	}
	file.Release() // it is held already
	f := s.files[i]
	if !slices.ContainsFunc(f.users,
		func(u user) bool {
			return u.process.PID == process.PID &&
				u.process.StartTime == process.StartTime
		}) {
		f.users = append(f.users, u)
	}
	return nil
}

// finish adds what was named and is not mapped, and finds out how each file can
// be opened from here.
func (s *scan) finish() {
	for _, n := range s.names {
		switch {
		case n.isMapped:
			continue
		case n.unmapped != nil:
			s.files = append(s.files, n.unmapped)
			n.unmapped, n.isFound = nil, true
		case !s.ofAll && n.err != nil:
			s.failProcess(n.pid, n.err)
		}
	}
	for _, f := range s.files {
		s.findHere(f)
	}
}

// findHere finds the best path to a file from here: its own, if it is the same
// file here, else that below the root directory of the process. If it has
// neither, the path of its mapping remains, which exists as long as the process
// maps the file.
func (s *scan) findHere(f *mapped) {
	switch {
	case s.self != 0 && s.finds(s.self, f):
		f.here = f.path
	case s.finds(f.pid, f):
		f.here = fmt.Sprintf("%s/%d/root%s", s.fs.Root(), f.pid, f.path)
	}
}

// finds reports whether a process finds the file at its path.
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

// close lets go of the files.
func (s *scan) close() {
	for _, f := range s.files {
		f.close()
	}
	for _, n := range s.names {
		if n.unmapped != nil {
			n.unmapped.close()
		}
	}
}

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
	byName bool             // mapped files are compared by their paths
	found  *os.File         // else, what is at that path
	id     procwatch.FileID // of found
}

// isNamed reports whether a mapped file is one of those named.
func isNamed(names []namedFile, m *procwatch.MappedFile) bool {
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
func (s *scan) namesIn(pid int, files []*procwatch.MappedFile) []namedFile {
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
func (n *namedFile) find(fs *procfs.FS, pid int) {
	var err error
	if strings.Contains(n.name, "/") {
		n.found, err = procwatch.OpenIn(fs, pid, n.name)
	} else {
		err = fmt.Errorf("%s: %w: process %d maps no file of that name "+
			"(give its path as the process sees it)", n.name, os.ErrNotExist, pid)
	}
	if err == nil {
		n.id, err = procwatch.IdentifyFile(n.found)
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

// machineName returns the name of the file's machine, in text and in JSON.
// Class and byte order make different machines of one ELF number.
func machineName(f *elfnote.File) string {
	header := f.Header()
	names, known := machineNames[header.Machine]
	switch {
	case !known:
		return header.Machine.String()
	case header.Machine == elf.EM_PPC64 && byteOrderName(f) == "big",
		header.Machine != elf.EM_PPC64 && header.Class != elf.ELFCLASS64:
		return names[1]
	}
	return names[0]
}

// machineNames are those of 64 and of 32 bits; of PowerPC, of both byte orders.
var machineNames = map[elf.Machine][2]string{
	elf.EM_X86_64:    {"x86-64", "x32"},
	elf.EM_386:       {"i386", "i386"},
	elf.EM_AARCH64:   {"arm64", "arm64"},
	elf.EM_ARM:       {"arm", "arm"},
	elf.EM_S390:      {"s390x", "s390"},
	elf.EM_PPC64:     {"ppc64le", "ppc64"},
	elf.EM_RISCV:     {"riscv64", "riscv32"},
	elf.EM_LOONGARCH: {"loongarch64", "loongarch32"},
}

func classBits(f *elfnote.File) int {
	if f.Header().Class == elf.ELFCLASS32 {
		return 32
	}
	return 64
}

func byteOrderName(f *elfnote.File) string {
	if f.Header().ByteOrder == binary.ByteOrder(binary.BigEndian) {
		return "big"
	}
	return "little"
}

// kindOf returns what a file is, as the JSON document has it and in words.
func kindOf(f *elfnote.File) (kind, words string) {
	switch {
	case f.IsDebugFile():
		return "debug_file", "separate debug file"
	case f.Header().Type == elf.ET_EXEC:
		return "executable", "executable"
	case f.Header().Type == elf.ET_REL:
		return "relocatable", "object file"
	}
	return "position_independent", "position-independent file"
}

// attachable reports whether the file's probes can be attached to.
func attachable(f *elfnote.File) bool {
	return !f.IsDebugFile() && f.Header().Type != elf.ET_REL
}
