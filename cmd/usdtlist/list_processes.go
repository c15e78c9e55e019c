// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gousdt/gousdt/proc"
)

// listProcesses lists the files that processes map. It tells how many probes it
// listed, whether something had to be left out, and what has been looked at, ""
// if nothing was.
func (l *lister) listProcesses() (found int, failed bool, where string) {
	s := newScan(l)
	defer s.close()
	if l.options.allProcesses {
		s.all()
	} else {
		s.some(l.options.pids)
	}
	s.finish()
	if l.options.allProcesses {
		slices.SortStableFunc(s.files, func(a, b *mapped) int { return cmp.Compare(a.path, b.path) })
	}
	tellUsers := l.options.allProcesses || len(l.options.pids) > 1
	for _, f := range s.files {
		n, err := l.listOpened(&listing{path: f.path, heading: true, mapped: f, tellUsers: tellUsers, elf: f.elf})
		found += n
		if err != nil {
			s.left = append(s.left, failure{name: f.path, pid: f.pid, err: err})
		}
	}
	l.warnLeft(s.left)
	for _, n := range s.names {
		if !n.isMapped && !n.isFound && !s.resolve {
			l.warn("no process maps %s", n.name)
		}
	}
	return found, len(s.left) > 0, s.where()
}

// all looks into every process there is.
func (s *scan) all() {
	pids, err := s.fs.PIDs()
	if err != nil {
		s.leave(0, err)
		return
	}
	slices.Sort(pids)
	for _, pid := range pids {
		if pid == s.self {
			continue // nobody asks for this command's own files
		}
		if err := s.process(pid); err != nil && !errors.Is(err, proc.ErrGone) {
			s.leave(pid, err)
		}
	}
	// Every PID namespace has a process 1.
	if hidden := s.hidden(); hidden != "" && pids[0] != 1 {
		s.leave(0, fmt.Errorf("left out: processes that are %s", hidden))
	}
}

// some looks into the processes asked for.
func (s *scan) some(pids []int) {
	for _, pid := range pids {
		err := s.process(pid)
		if errors.Is(err, proc.ErrGone) {
			or := ""
			if hidden := s.hidden(); hidden != "" {
				or = ", or it is " + hidden
			}
			err = fmt.Errorf("process %d: no such process%s", pid, or)
		}
		if err != nil {
			s.leave(pid, err)
		}
	}
}

// hidden says how the proc file system hides processes, "" if it does not.
func (s *scan) hidden() string {
	hide, err := s.fs.HidePID()
	if err != nil || hide == "" {
		return ""
	}
	return fmt.Sprintf("hidden by hidepid=%s of %s (run as root or with CAP_SYS_PTRACE)", hide, s.fs.Root())
}

// where says where there were no probes, for the case that there were none.
func (s *scan) where() string {
	whose := fmt.Sprintf("%d processes", len(s.looked))
	if len(s.looked) == 1 {
		whose = "process " + s.looked[0].String()
	}
	var names []string
	for _, n := range s.names {
		if n.isMapped || n.isFound {
			names = append(names, n.name)
		}
	}
	switch {
	case len(s.looked) == 0 || len(s.names) > 0 && len(names) == 0:
		return ""
	case len(names) > 0:
		return fmt.Sprintf("%s of %s", strings.Join(names, ", "), whose)
	case s.seen == 0:
		return whose + ", which maps no files" // threads of the kernel, say
	}
	return "the files of " + whose
}

// maxPIDs is how many of the processes left out are told by number.
const maxPIDs = 10

// warnLeft tells what was left out. Without privileges those are most
// processes, for one reason.
func (l *lister) warnLeft(left []failure) {
	var denied []string
	var others []error
	for _, f := range left {
		l.printer.failed(f)
		if l.options.allProcesses && f.pid != 0 && f.name == "" && errors.Is(f.err, proc.ErrAccess) {
			denied = append(denied, strconv.Itoa(f.pid))
		} else {
			others = append(others, f.err)
		}
	}
	for i, err := range others {
		if i == maxWarnings && len(others) > maxWarnings+1 {
			l.warn("%d more that could not be looked at (--json lists them all)", len(others)-i)
			break
		}
		l.warn("%v", err)
	}
	if len(denied) > 0 {
		numbers := strings.Join(denied, " ")
		if more := len(denied) - maxPIDs; more > 1 {
			numbers = fmt.Sprintf("%s and %d more (--json lists them all)", strings.Join(denied[:maxPIDs], " "), more)
		}
		what := "process"
		if len(denied) > 1 {
			what = "processes"
		}
		l.warn("left out: %s %s: %v", what, numbers, proc.ErrAccess)
	}
}
