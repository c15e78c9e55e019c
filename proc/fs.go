// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
)

// FS is a proc file system. It holds nothing open and may be used by several
// goroutines at once.
//
// PIDs are those of the PID namespace for which the file system was mounted:
// with the /proc of a host mounted elsewhere in a container they are the
// host's, and mean nothing to system calls of the caller.
type FS struct {
	root string
}

// NewFS returns the proc file system at root, "/proc" if root is "". Any
// directory tree that looks like one will do. Nothing is checked yet.
func NewFS(root string) *FS {
	if root == "" {
		root = "/proc"
	}
	if trimmed := strings.TrimRight(root, "/"); trimmed != "" {
		root = trimmed
	}
	return &FS{root: root}
}

// Root returns the directory of the file system. A nil FS is the default one,
// as in [WatcherOptions].
func (f *FS) Root() string {
	if f == nil {
		f = NewFS("")
	}
	return f.root
}

// path returns the path of something in a process's directory.
func (f *FS) path(pid int, name string) string {
	return f.root + "/" + strconv.Itoa(pid) + "/" + name
}

// PIDs returns the processes there are, in the order of the directory, which is
// by number on Linux. With hidepid=invisible they are those the caller may see.
func (f *FS) PIDs() ([]int, error) {
	dir, err := os.Open(f.root)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
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
		return nil, fmt.Errorf("list processes of %s: %w", f.root, ErrNoSuchMount)
	}
	return pids, nil
}

// HidePID returns how the file system at its root hides processes: "noaccess"
// (1), "invisible" (2) or "ptraceable" (4), as mount options spell it, and ""
// if it does not. It tells why PIDs may be fewer than there are; who has
// CAP_SYS_PTRACE, or is in the group that the mount option gid= names, sees all
// the same.
func (f *FS) HidePID() (string, error) {
	file, err := openRaw(f.root + "/self/mounts")
	if err != nil {
		return "", fmt.Errorf("read mount options of %s: %w", f.root, err)
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxMounts))
	if err != nil {
		return "", fmt.Errorf("read mount options of %s: %w", f.root, err)
	}
	return hidePID(text, f.root), nil
}

// hidePID finds the option in a mount table, whose later lines cover the
// earlier.
func hidePID(mounts []byte, root string) string {
	// Blanks and the like are octal there.
	root = strings.NewReplacer(`\`, `\134`, " ", `\040`, "\t", `\011`, "\n", `\012`).Replace(root)
	hide := ""
	for line := range bytes.Lines(mounts) {
		fields := bytes.Fields(line)
		if len(fields) < 4 || string(fields[1]) != root || string(fields[2]) != "proc" {
			continue
		}
		hide = ""
		for option := range bytes.SplitSeq(fields[3], []byte(",")) {
			if value, ok := bytes.CutPrefix(option, []byte("hidepid=")); ok {
				hide = string(value)
			}
		}
	}
	switch hide {
	case "0", "off": // spelled as numbers before Linux 5.8
		return ""
	case "1":
		return "noaccess"
	case "2":
		return "invisible"
	case "4":
		return "ptraceable"
	}
	return hide
}

// OwnPIDs tells whether the PIDs of the file system are those that system calls
// of the caller take and return. A nil FS is the default one, as in
// [WatcherOptions].
//
// It is told by the line NSpid of self/status (Linux 4.1, see proc(5)), and so
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
