// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"errors"
	"fmt"
	"io"
	"os"
)

// maxCgroup bounds what is read of /proc/PID/cgroup: up to a dozen hierarchies,
// whose paths are at most 4,096 bytes long each.
const maxCgroup = 64 << 10

// ProcessID identifies a process for as long as the machine runs: PIDs
// are used again, but not with the same start time. It can be compared and be a
// map key.
type ProcessID struct {
	// PID is the number of the process in the namespace of the [FS].
	PID int
	// StartTime is when the process was forked, in clock ticks (100 a second)
	// after boot, as field 22 of /proc/PID/stat. exec does not change it.
	StartTime uint64
}

// Process is a process as it was when it was read.
type Process struct {
	ProcessID
	// Parent is the PID of the parent, 0 if that is not in the namespace.
	Parent int
	// Command is the name of the first thread, of at most 15 bytes: that of the
	// executable, unless the process chose another.
	Command string

	fs *FS
}

// Process returns what stat says about a process. The error is an [*Error]
// that may wrap [ErrGone] or [ErrAccess].
func (f *FS) Process(pid int) (Process, error) {
	s, err := f.readStat(pid, make([]byte, maxStat))
	if err != nil {
		return Process{}, err
	}
	return f.process(pid, &s), nil
}

func (f *FS) process(pid int, s *stat) Process {
	return Process{
		ProcessID: ProcessID{PID: pid, StartTime: s.startTime},
		Parent:    int(s.parent),
		Command:   string(s.command),
		fs:        f,
	}
}

// IsRunning reports whether the process still exists, rather than another one
// that got its PID. A zombie does not run. The error says why it could not be
// found out.
func (p Process) IsRunning() (bool, error) {
	s, err := p.fs.readStat(p.PID, make([]byte, maxStat))
	switch {
	case err == nil:
		return s.startTime == p.StartTime && !s.hasNoMemory(), nil
	case errors.Is(err, ErrGone):
		return false, nil
	}
	return false, err
}

// Executable returns the path of the program that the process runs, as the
// process sees it. " (deleted)" is appended if there is nothing at that path
// any more. It needs access to the process.
func (p Process) Executable() (string, error) {
	path, err := os.Readlink(p.fs.path(p.PID, "exe"))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read link exe", Err: classify(err)}
	}
	return p.fs.insideRoot(p.PID, path), nil
}

// Cgroup returns the text of /proc/PID/cgroup, a line per hierarchy, see
// cgroups(7). Runtimes put the ID of a container there.
func (p Process) Cgroup() (string, error) {
	file, err := openRaw(p.fs.path(p.PID, "cgroup"))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read cgroup", Err: classify(err)}
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxCgroup))
	if err != nil {
		return "", &Error{PID: p.PID, Op: "read cgroup", Err: classify(err)}
	}
	return string(text), nil
}

// Owner returns a text that is the same for all processes among which costs and
// limits are shared: those of a container, else of the slice of a user, else of
// a cgroup and user. Making cgroups and users of its own gives a container or
// user no second owner.
func (p Process) Owner() string { return p.fs.owner(p.PID) }

// String returns PID and command: "1234 (postgres)".
func (p Process) String() string { return fmt.Sprintf("%d (%s)", p.PID, p.Command) }

// liveThread returns a thread of the process that has not ended, by whose
// number proc shows what it can no longer show by the process's. It is asked
// for processes whose first thread has ended.
func (f *FS) liveThread(pid int, buf []byte) (int, stat, error) {
	dir, err := os.Open(f.path(pid, "task"))
	if err != nil {
		return 0, stat{}, &Error{PID: pid, Op: "list threads", Err: classify(err)}
	}
	defer dir.Close()
	for {
		names, err := dir.Readdirnames(64)
		for _, name := range names {
			tid, ok := parsePID(name)
			if !ok || tid == pid {
				continue
			}
			if s, err := f.readStat(tid, buf); err == nil && s.size != 0 {
				return tid, s, nil
			}
		}
		if err != nil {
			return 0, stat{}, &Error{PID: pid, Op: "list threads",
				Err: fmt.Errorf("%w: no thread runs", ErrGone)}
		}
	}
}
