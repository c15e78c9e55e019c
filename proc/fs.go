// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/internal/procfs"
)

// FS is a proc file system. It holds nothing open and may be used by several
// goroutines at once. A nil *FS is /proc.
//
// PIDs are those of the PID namespace for which the file system was mounted. If
// the /proc of a host is mounted elsewhere in a container, they are the host's,
// and mean nothing to system calls of the caller.
type FS struct {
	root string
}

const defaultRoot = "/proc"

// NewFS returns the proc file system at root, "/proc" if root is "". Any
// directory tree that looks like one will do. Nothing is checked yet.
func NewFS(root string) *FS {
	if root == "" {
		root = defaultRoot
	}
	if trimmed := strings.TrimRight(root, "/"); trimmed != "" {
		root = trimmed
	}
	return &FS{root: root}
}

// Root returns the directory of the file system.
func (f *FS) Root() string {
	if f == nil {
		return defaultRoot
	}
	return f.root
}

// PIDs returns the processes there are, in the order of the directory, which is
// by number on Linux. With hidepid=invisible they are those the caller may see.
func (f *FS) PIDs() ([]int, error) {
	dir, err := os.Open(f.Root())
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	return procfs.ReadPIDs(dir)
}

// Process returns what stat says about a process. The error may wrap [ErrGone]
// or [ErrAccess].
func (f *FS) Process(pid int) (Process, error) {
	s, err := procfs.ReadStat(f.Root(), pid, make([]byte, procfs.MaxStat))
	if err != nil {
		return Process{}, err
	}
	return Process{
		ProcessID: ProcessID{PID: pid, StartTime: s.StartTime},
		Parent:    int(s.Parent),
		Command:   string(s.Command),
		fs:        f,
	}, nil
}
