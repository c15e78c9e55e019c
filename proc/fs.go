// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

// path returns the path of something in a process's directory.
func (f *FS) path(pid int, name string) string {
	return f.Root() + "/" + strconv.Itoa(pid) + "/" + name
}

// PIDs returns the processes there are, in the order of the directory, which is
// by number on Linux. With hidepid=invisible they are those the caller may see.
func (f *FS) PIDs() ([]int, error) {
	dir, err := os.Open(f.Root())
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	return f.pids(dir)
}

// pids is PIDs for the directory of the file system, just opened or rewound.
func (f *FS) pids(dir *os.File) ([]int, error) {
	// Readdirnames does not stat what it lists; the rest of os would.
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, ok := parsePID(name); ok {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("list processes of %s: not a proc file system (no directory of a process in it)", f.Root())
	}
	return pids, nil
}

// OwnPIDs reports whether the PIDs of the file system are those that system
// calls of the caller take and return.
//
// It goes by the line NSpid of self/status (Linux 4.1, see proc(5)), and so is
// not deceived by PIDs that are equal by chance in two namespaces.
func (f *FS) OwnPIDs() bool {
	status, err := os.ReadFile(f.Root() + "/self/status")
	if err != nil {
		return false // it knows nothing of the caller
	}
	for line := range strings.Lines(string(status)) {
		// The PIDs of the caller, from the namespace of the file system to its
		// own.
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.TrimSpace(pids) == strconv.Itoa(os.Getpid())
		}
	}
	return true // a kernel without PID namespaces
}
