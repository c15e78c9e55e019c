// SPDX-License-Identifier: BSD-2-Clause

package usdt

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/proc"
)

// ErrNoProbes is wrapped by the error for a file that carries no USDT probe at
// all.
var ErrNoProbes = errors.New("no USDT probes in the file")

// ErrUnsafeNop is wrapped by the error for a site that is a five-byte nop of
// any form, on a kernel that would turn the breakpoint there into a call
// (x86-64, Linux 6.18 to 7.1): the call overwrites the red zone of the traced
// program.
var ErrUnsafeNop = errors.New("a five-byte nop, which this kernel (Linux 6.18 to 7.1) replaces by a call that overwrites " +
	"the program's red zone: build the program with a one-byte nop, or use another kernel")

// ErrPrefixedNop is wrapped by the error for a site that is a nop with a prefix
// for a segment or for locking (x86): no kernel takes a breakpoint there, and
// one without a process to tell by would silently never be hit.
var ErrPrefixedNop = errors.New("a nop with a segment or lock prefix, at which the kernel refuses a breakpoint: " +
	"build the program with a one-byte nop")

// ErrNoProcess is wrapped by the *ProcessError for a process that does not
// exist, or not any more. errors.Is tells it to be an os.ErrNotExist, too.
var ErrNoProcess error = noProcess{}

type noProcess struct{}

func (noProcess) Error() string { return "no such process" }

// Is makes a process that is missing something that does not exist.
func (noProcess) Is(target error) bool { return target == os.ErrNotExist }

// ErrMainThreadExited is wrapped by the *ProcessError for a process whose main
// thread has exited before others: by that thread the kernel knows a process.
// Its probes can be attached for every process, without PID.
var ErrMainThreadExited = errors.New("its main thread has exited, and by that the kernel knows a process: attach without PID")

// ErrNotMapped is wrapped by the error for a file whose addresses are needed
// but which the process has not mapped.
var ErrNotMapped = errors.New("the process has not mapped the file")

// A NotFoundError says that a file has probes but none that was asked for.
type NotFoundError struct {
	File    string
	Probe   string   // as asked for, PROVIDER:NAME or a pattern; "" where a function was to match
	Nearest []string // up to three PROVIDER:NAME of the file that are spelled most alike
}

func (e *NotFoundError) Error() string {
	s := e.File + ": no probe matches"
	if e.Probe != "" {
		s = fmt.Sprintf("%s: no probe %s", e.File, e.Probe)
	}
	if len(e.Nearest) > 0 {
		s += " (nearest: " + strings.Join(e.Nearest, ", ") + ")"
	}
	return s
}

// An UnsupportedError says what the running kernel lacks.
type UnsupportedError struct {
	Feature string // what is missing
	Since   string // the Linux version that brought it, "" where no version does
	Hint    string // what to do instead, may be empty
}

func (e *UnsupportedError) Error() string {
	s := "the kernel has no " + e.Feature
	if e.Since != "" {
		s += " (needs Linux " + e.Since + ")"
	}
	if e.Hint != "" {
		s += "; " + e.Hint
	}
	return s
}

// A PermissionError says that the process may not do what was asked.
type PermissionError struct {
	Op  string // what was tried
	Err error
}

func (e *PermissionError) Error() string {
	return fmt.Sprintf("%s: %v (needs root, or CAP_BPF and CAP_PERFMON; for perf events on programs, which is how kernels "+
		"without uprobe_multi links attach, CAP_SYS_ADMIN; CAP_SYS_PTRACE to look into processes of other users)", e.Op, e.Err)
}

// Unwrap returns the cause, so that errors.Is(err, os.ErrPermission) holds.
func (e *PermissionError) Unwrap() error { return e.Err }

// A SpecsFullError says that the map of specs has no room for the specs of an
// Attach. Nothing was attached.
type SpecsFullError struct {
	Capacity int // what the map holds
	InUse    int // taken before the Attach
	Needed   int // new specs of the Attach
}

func (e *SpecsFullError) Error() string {
	return fmt.Sprintf("the spec map holds %d specs, %d in use, %d more needed: set ManagerOptions.MaxSpecs to %d or more",
		e.Capacity, e.InUse, e.Needed, e.InUse+e.Needed)
}

// An AddressesFullError says that the map from instruction pointers to specs
// has no room for the sites of an Attach in ModeSingleIPMap. Nothing was
// attached.
type AddressesFullError struct {
	Capacity int // what the map holds
	InUse    int // taken before the Attach
	Needed   int // new addresses of the Attach
}

func (e *AddressesFullError) Error() string {
	return fmt.Sprintf("the address map holds %d addresses, %d in use, %d more needed: set ManagerOptions.MaxAddresses to %d or more",
		e.Capacity, e.InUse, e.Needed, e.InUse+e.Needed)
}

// An AddressInUseError says that in ModeSingleIPMap one address would have to
// stand for two specs: the same site attached twice with different cookies, or
// sites of two programs that are linked to the same address. A kernel with BPF
// cookies knows no such limit.
type AddressInUseError struct {
	Address uint64
}

func (e *AddressInUseError) Error() string {
	return fmt.Sprintf("address %#x is attached with other arguments or another cookie already; without BPF cookies "+
		"(Linux 5.15) an address can be attached once per Manager", e.Address)
}

// A SiteError says why one site cannot be attached. Nothing was attached.
type SiteError struct {
	File     string
	Provider string
	Name     string
	Location uint64 // the site's address as in the note, adjusted for prelink
	Err      error
}

func (e *SiteError) Error() string {
	return fmt.Sprintf("%s: probe %s:%s at %#x: %v", e.File, e.Provider, e.Name, e.Location, e.Err)
}

// Unwrap returns the cause.
func (e *SiteError) Unwrap() error { return e.Err }

// A NotNopError says that a site does not hold a no-operation instruction. A
// breakpoint there could land inside another instruction and kill the traced
// program, so the site is refused. It is the cause in a SiteError.
type NotNopError struct {
	Bytes []byte // the machine code found
}

func (e *NotNopError) Error() string {
	if len(e.Bytes) == 0 {
		return "no machine code in the file there"
	}
	return fmt.Sprintf("no nop there but % x (is the file damaged, or another version than its notes?)", e.Bytes)
}

// A SemaphoreClashError says that the kernel refused a site since another
// tracer has attached the same instruction with another semaphore, or none. It
// is the cause in a SiteError.
type SemaphoreClashError struct {
	Semaphore uint64 // file offset of the semaphore, 0 if the site has none
	Err       error
}

func (e *SemaphoreClashError) Error() string {
	own := "no semaphore, as here"
	if e.Semaphore != 0 {
		own = fmt.Sprintf("the one at file offset %#x", e.Semaphore)
	}
	return fmt.Sprintf("another tracer holds this site with another semaphore than %s: detach it first: %v", own, e.Err)
}

// Unwrap returns the kernel's answer.
func (e *SemaphoreClashError) Unwrap() error { return e.Err }

// An OffsetOverflowError says that an offset does not fit where the kernel
// wants it in 32 bits. It is the cause in a SiteError.
type OffsetOverflowError struct {
	Offset uint64
}

func (e *OffsetOverflowError) Error() string {
	return fmt.Sprintf("the semaphore's file offset %#x does not fit into the 32 bits of a perf event "+
		"(a uprobe_multi link, Linux 6.6, takes 64)", e.Offset)
}

// An ArgumentError says which argument made a strict Attach fail. It is the
// cause in a SiteError.
type ArgumentError struct {
	Index int    // from 0
	Raw   string // as in the note
	Err   error  // why it cannot be fetched
}

func (e *ArgumentError) Error() string {
	return fmt.Sprintf("argument %d (%s) cannot be fetched: %v", e.Index, e.Raw, e.Err)
}

// Unwrap returns the reason.
func (e *ArgumentError) Unwrap() error { return e.Err }

// A ProcessError says that a process cannot be traced, since it does not exist
// or has gone.
type ProcessError struct {
	PID int
	Err error
}

func (e *ProcessError) Error() string { return fmt.Sprintf("process %d: %v", e.PID, e.Err) }

// Unwrap returns the cause, ErrNoProcess where the process does not exist.
func (e *ProcessError) Unwrap() error { return e.Err }

// A ProgramError says that a program was not loaded as this Manager needs it.
type ProgramError struct {
	Program string
	Reason  string
}

var errNoProgram = &ProgramError{Program: "nil", Reason: "there is no program to attach: was it loaded?"}

func (e *ProgramError) Error() string { return fmt.Sprintf("program %s: %s", e.Program, e.Reason) }

// A WatchError says what a Watch could not attach to.
type WatchError struct {
	Program *ebpf.Program // nil where it is of the file as a whole, as one that cannot be read: no program is attached to it
	Name    string        // of the program
	Path    string        // of the file, as the process sees it
	Process proc.Process  // the one that was to be attached, or where it is every process the first one found with the file
	Err     error         // as of Attach
}

func (e *WatchError) Error() string {
	program := ""
	if e.Name != "" {
		program = e.Name + " "
	}
	return fmt.Sprintf("attaching %sto %s in process %s: %v", program, e.Path, e.Process, e.Err)
}

// Unwrap returns the cause.
func (e *WatchError) Unwrap() error { return e.Err }

// programName returns what people call a program, "" for none.
func programName(prog *ebpf.Program) string {
	if prog == nil {
		return ""
	}
	if info, err := prog.Info(); err == nil && info.Name != "" {
		return info.Name
	}
	return prog.String()
}

// explain makes a PermissionError of an error for want of privilege, and wraps
// any other with what was tried.
func explain(op string, err error) error {
	if errors.Is(err, os.ErrPermission) {
		return &PermissionError{Op: op, Err: err}
	}
	return fmt.Errorf("%s: %w", op, err)
}
