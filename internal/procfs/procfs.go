// SPDX-License-Identifier: BSD-2-Clause

// Package procfs reads the files of a proc file system, and finds and opens the
// files that processes have mapped.
package procfs

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/gousdt/gousdt/internal/sys"
)

// FS is the directory of a proc file system, "" for /proc. Any directory tree
// that looks like one will do. PIDs are those of the PID namespace for which it
// was mounted. If the /proc of a host is mounted elsewhere in a container, they
// mean nothing to system calls of the caller.
type FS string

// Root returns the directory without slashes at its end.
func (f FS) Root() string {
	root := cmp.Or(string(f), "/proc")
	return cmp.Or(strings.TrimRight(root, "/"), root)
}

// PIDs returns the processes there are, in the order of the directory, which is
// by number on Linux. With hidepid=invisible they are those the caller may see.
func (f FS) PIDs() ([]int, error) {
	dir, err := os.Open(f.Root())
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	defer dir.Close()
	return ReadPIDs(dir)
}

func dirOf(root string, pid int) string { return root + "/" + strconv.Itoa(pid) }

// Path returns the path of something in a process's directory.
func Path(root string, pid int, name string) string {
	return root + "/" + strconv.Itoa(pid) + "/" + name
}

// ReadPIDs returns the processes that the directory of the file system lists,
// just opened or rewound.
func ReadPIDs(dir *os.File) ([]int, error) {
	// Readdirnames does not stat what it lists; the rest of os would.
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, ok := ParsePID(name); ok {
			pids = append(pids, pid)
		}
	}
	if len(pids) == 0 {
		return nil, fmt.Errorf("list processes of %s: not a proc file system (no directory of a process in it)", dir.Name())
	}
	return pids, nil
}

// HasOwnPIDs reports whether the PIDs of the file system are those that system
// calls of the caller take and return. PIDs that are equal by chance in two
// namespaces do not deceive it.
func HasOwnPIDs(root string) bool {
	pids, err := NamespacePIDs(root, "self")
	// With an error, the file system knows nothing of the caller.
	return err == nil && (pids == nil || slices.Equal(pids, []string{strconv.Itoa(os.Getpid())}))
}

// NamespacePIDs returns the PIDs that a process has in the PID namespace of the
// file system and in each one below it, down to its own: the line NSpid of
// status (Linux 4.1, proc(5)). A kernel without PID namespaces has none.
func NamespacePIDs(root, process string) ([]string, error) {
	status, err := os.ReadFile(root + "/" + process + "/status")
	for line := range strings.Lines(string(status)) {
		if pids, ok := strings.CutPrefix(line, "NSpid:"); ok {
			return strings.Fields(pids), err
		}
	}
	return nil, err
}

// RootOf returns the process's root directory as paths look in the caller's
// proc, "/" if it cannot be found out.
func RootOf(root string, pid int) string {
	dir, err := os.Readlink(Path(root, pid, "root"))
	if err != nil {
		return "/"
	}
	return dir
}

// CutRoot turns a path that the kernel made for the caller into the path that
// the process sees, given the process's root. The kernel writes paths from the
// root of the mount namespace that the file is in, or from the caller's root if
// that is on the way: for a process after chroot, both differ from its own
// root.
func CutRoot(path, root string) string {
	rest, ok := strings.CutPrefix(path, root)
	if ok && root != "/" && strings.HasPrefix(rest, "/") {
		return rest
	}
	return path
}

// Reasons why a process, or a file that it maps, cannot be read. They are
// wrapped in an [Error]: compare with errors.Is. Package proc documents those
// that it exports.
var (
	ErrGone    = sys.ErrGone
	ErrAccess  = errors.New("no access to the process (run as its user or with CAP_SYS_PTRACE; hidepid on the proc file system denies it too)")
	ErrBlocked = errors.New("no answer from the process or its files (set aside until there is one)")
	// ErrUnreachable means that the mapped file has no path any more, or that
	// another file has taken its path. It could not be opened through map_files
	// either, which needs CAP_CHECKPOINT_RESTORE or, before Linux 5.9,
	// CAP_SYS_ADMIN in the initial user namespace.
	ErrUnreachable = errors.New("the mapped file is not at its path (to open it through map_files run with CAP_CHECKPOINT_RESTORE or CAP_SYS_ADMIN)")
	// ErrChanged means that the mapping or the file has changed since it was
	// found.
	ErrChanged = errors.New("mapping or file changed while it was read (try again)")
	// ErrNotRegular means that a device or the like is mapped. It is not
	// opened, because opening a device may do something.
	ErrNotRegular = errors.New("not a regular file")
	// ErrMalformed means that what was read is not of the form that proc(5)
	// describes.
	ErrMalformed = errors.New("malformed")
)

// Error is an error of one process, or of one file that it maps. Nothing else
// is affected.
type Error struct {
	PID  int
	Path string // as the process sees it, "" if the error is of the process as a whole
	Op   string // what was tried: "read stat", "read maps", "open", "read probes"
	Err  error
}

// Error quotes the path, because the process chose it.
func (e *Error) Error() string {
	text := e.Op
	if e.Path != "" {
		text += " " + strconv.Quote(e.Path)
	}
	if e.PID != 0 {
		text = fmt.Sprintf("process %d: %s", e.PID, text)
	}
	return text + ": " + e.Err.Error()
}

func (e *Error) Unwrap() error { return e.Err }

// Classify wraps an error of reading a process in [ErrGone] or [ErrAccess].
func Classify(err error) error {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("%w: %w", ErrGone, err)
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", ErrAccess, err)
	}
	return err
}

// IsLack reports whether an error comes from the caller's own limits.
func IsLack(err error) bool {
	return errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.ENFILE) ||
		errors.Is(err, syscall.ENOMEM)
}
