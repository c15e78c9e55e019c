// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/gousdt/gousdt/internal/commandline"
	"github.com/gousdt/gousdt/internal/procfs"
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
			continue // nobody asks for this command's own files
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
