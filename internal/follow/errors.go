// SPDX-License-Identifier: BSD-2-Clause

package follow

import (
	"errors"
	"fmt"
	"os"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/truncate"
	"github.com/gousdt/gousdt/proc"
)

// These are errors of packages usdt and trace whose fields only this project
// reads. For others their text, and what they wrap, is enough.

// A SiteError says why one site cannot be attached.
type SiteError struct {
	Provider string
	Name     string
	// The site's address as in the note, adjusted for prelink; 0 if the note is
	// malformed.
	Location uint64
	Err      error  // why; it wraps the error of the kernel or of the file
	Path     string // of the file
}

func (e *SiteError) Error() string {
	if _, malformed := e.Err.(*elffile.NoteError); malformed { // which names the probe
		return fmt.Sprintf("%s: %v", e.Path, e.Err)
	}
	return fmt.Sprintf("%s: probe %s:%s at %#x: %v", e.Path, truncate.Name(e.Provider),
		truncate.Name(e.Name), e.Location, e.Err)
}

func (e *SiteError) Unwrap() error { return e.Err }

// A LimitError says that there is no room for an attachment: in a map of the
// Manager, or by the MaxSites of a target, or by the Limits of a watch. Nothing
// was attached. Set the option to InUse+Needed or more.
type LimitError struct {
	Limit    string // what is full: "specs", "addresses" or "sites", for example
	Option   string // what to set: "ManagerOptions.MaxSpecs" or "Limits.Sites", for example
	Capacity int    // what there is room for
	InUse    int    // taken before the attachment
	Needed   int    // by the attachment
}

func (e *LimitError) Error() string {
	return fmt.Sprintf("there is room for %d %s, %d are in use, and %d more are needed: set %s to %d or more",
		e.Capacity, e.Limit, e.InUse, e.Needed, e.Option, e.InUse+e.Needed)
}

// inWatch returns an error about a target's MaxSites as one about the same
// option of a watch.
func inWatch(err error) error {
	var file *LimitError
	if !errors.As(err, &file) || file.Option != maxSites {
		return err
	}
	limit := *file
	limit.Option = "Limits.FileSites"
	return elffile.TooLarge(&limit)
}

// TooMany returns an error for a file with more than the MaxSites of a target
// allow.
func TooMany(file, what string, limit, needed int) error {
	return fmt.Errorf("%s: %w", file, elffile.TooLarge(
		&LimitError{Limit: what, Option: maxSites, Capacity: limit, Needed: needed}))
}

// perfEventSites is the number of sites that a perf event counts for.
const perfEventSites = 8

// CheckPerfEvents returns an error for a file that needs more perf events than
// the MaxSites of a target allow, if these are not 0. One is always allowed.
func CheckPerfEvents(file string, limit, events int) error {
	if needed := perfEventSites * events; limit > 0 && events > 1 && needed > limit {
		return TooMany(file, "sites (a perf event counts as 8)", limit, needed)
	}
	return nil
}

// maxSites is the name of the option that limits the sites of a file.
const maxSites = "Target.MaxSites"

// A PermissionError says that the caller lacks a privilege. errors.Is reports
// it to be [os.ErrPermission].
type PermissionError struct {
	Op  string // what was tried
	Err error
}

func (e *PermissionError) Error() string {
	if errors.Is(e.Err, procfs.ErrAccess) { // which names the privilege
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s needs root, or CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN "+
		"on kernels that attach by perf events: %v", e.Op, e.Err)
}

func (e *PermissionError) Unwrap() error { return e.Err }

// A WatchError says that a watch could not attach to a file.
type WatchError struct {
	// Path is the file's path as the process sees it.
	Path string
	// Process is the process that was to be attached. For every process, it is
	// the first one found with the file.
	Process proc.Process
	Err     error
	// Program is its name, "" if the error is about the file for all programs.
	Program string
}

func (e *WatchError) Error() string {
	program := ""
	if e.Program != "" {
		program = e.Program + " "
	}
	return fmt.Sprintf("attaching %sto %s in process %s: %v", program, e.Path, e.Process, e.Err)
}

func (e *WatchError) Unwrap() error { return e.Err }

// Explain adds to an error what was tried. An error about a missing privilege
// becomes a PermissionError.
func Explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &PermissionError{Op: op, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
