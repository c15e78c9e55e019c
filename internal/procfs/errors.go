// SPDX-License-Identifier: BSD-2-Clause

package procfs

import (
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"syscall"

	"github.com/gousdt/gousdt/internal/sys"
)

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
	// ErrPostponed means that the scans of a process, or of other processes of
	// its container or user, have taken more than their share of the time. What
	// it maps meanwhile is found when it is scanned.
	ErrPostponed = errors.New("the process, or others of its container or user, change so often or map so much that it is scanned more seldom")
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

// Error says what was tried and why it failed. The path is quoted, because the
// process chose it.
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

// Classify wraps an error of reading something of a process in [ErrGone] or
// [ErrAccess], if it is one of these.
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
