// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/truncate"
	"github.com/gousdt/gousdt/proc"
)

// A NotFoundError says that a file has none of the probes asked for.
type NotFoundError struct {
	Nearest []string // up to three probes of the file, PROVIDER:NAME, that are spelled most alike

	path     string
	patterns string // as asked for; "" if the file has no probes at all
}

func (e *NotFoundError) Error() string {
	if e.patterns == "" {
		return e.path + ": the file has no USDT probes"
	}
	s := fmt.Sprintf("%s: no probe matches %s", e.path, e.patterns)
	if len(e.Nearest) > 0 {
		s += " (nearest: " + strings.Join(e.Nearest, ", ") + ")"
	}
	return s
}

// A SiteError says why one site cannot be attached.
type SiteError struct {
	Provider string
	Name     string
	// The site's address as in the note, adjusted for prelink; 0 if the note is
	// malformed.
	Location uint64
	Err      error // why: a text that wraps what the kernel or the file had to say

	path string
}

func (e *SiteError) Error() string {
	if _, malformed := e.Err.(*elfnote.NoteError); malformed { // which names the probe
		return fmt.Sprintf("%s: %v", e.path, e.Err)
	}
	return fmt.Sprintf("%s: probe %s:%s at %#x: %v", e.path, truncate.Name(e.Provider),
		truncate.Name(e.Name), e.Location, e.Err)
}

// Unwrap returns the cause.
func (e *SiteError) Unwrap() error { return e.Err }

// A LimitError says that there is no room for an attachment: in a map of the
// Manager, or by [Target].MaxSites, or by the [Limits] of a Watch.
// Nothing was attached. Set the option to InUse+Needed or more.
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

// A PermissionError says that the caller lacks a privilege. errors.Is reports
// it to be [os.ErrPermission].
type PermissionError struct {
	Op  string // what was tried
	Err error
}

func (e *PermissionError) Error() string {
	if errors.Is(e.Err, proc.ErrAccess) { // which says what it takes
		return fmt.Sprintf("%s: %v", e.Op, e.Err)
	}
	return fmt.Sprintf("%s needs root, or CAP_BPF and CAP_PERFMON, and CAP_SYS_ADMIN "+
		"on kernels that attach by perf events: %v", e.Op, e.Err)
}

// Unwrap returns the cause.
func (e *PermissionError) Unwrap() error { return e.Err }

// A WatchError says what a Watch could not attach to.
type WatchError struct {
	// Path is the file's path as the process sees it.
	Path string
	// Process is the process that was to be attached. If that is every process,
	// it is the first one found with the file.
	Process proc.Process
	// Err is an error of those that [Manager.Attach] returns.
	Err error

	program string // its name; "" if the error is about the file for all programs
}

func (e *WatchError) Error() string {
	program := ""
	if e.program != "" {
		program = e.program + " "
	}
	return fmt.Sprintf("attaching %sto %s in process %s: %v", program, e.Path, e.Process, e.Err)
}

// Unwrap returns the cause.
func (e *WatchError) Unwrap() error { return e.Err }

// Why a site is refused before the kernel is asked.
var (
	errUnsafeNop = errors.New("a five-byte nop, which this kernel (Linux 6.18 to 7.1) replaces by a call that overwrites " +
		"the program's red zone: build the program with a one-byte nop, or use another kernel")
	errPrefixedNop = errors.New("a nop with a segment or lock prefix, at which the kernel refuses a breakpoint: " +
		"build the program with a one-byte nop")
)

// notNop returns the error for a site that does not hold a nop. A breakpoint
// there could land inside another instruction and kill the traced program.
func notNop(code []byte) error {
	if len(code) == 0 {
		return errors.New("the file has no machine code there")
	}
	return fmt.Errorf("no nop there but % x (is the file damaged, or another version than its notes?)",
		code[:min(len(code), 8)])
}

// semaphoreClash returns the error for a site that the kernel refuses because
// the same instruction is attached with another semaphore, or without one: by
// another tracer, or for another probe.
func semaphoreClash(semaphore uint64, err error) error {
	own := "the file has none here"
	if semaphore != 0 {
		own = fmt.Sprintf("the file has the one at offset %#x", semaphore)
	}
	return fmt.Errorf("another tracer has attached this site with another semaphore (%s): detach it first: %w", own, err)
}

// errAddressInUse means that in ModeSingleIPMap an address would need two
// specs: the same site is attached twice with different cookies, or the sites
// of two programs are linked to the same address.
var errAddressInUse = errors.New("attached with other arguments or another cookie already; without BPF cookies " +
	"(Linux 5.15) an address can be attached once per Manager")

var errNoProgram = errors.New("there is no program to attach: was it loaded?")

// explain adds to an error what was tried. An error about a missing privilege
// becomes a PermissionError.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &PermissionError{Op: op, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
