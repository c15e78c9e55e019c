// SPDX-License-Identifier: BSD-2-Clause

package usdt

import "fmt"

// Mode is a way to attach programs. It also decides how a program knows at
// which site it was called.
//
// The mode is chosen before programs are loaded, because the kernel wants a
// program for a uprobe_multi link to be loaded with another attach type than
// one for a perf event.
type Mode uint8

const (
	// ModeAuto stands for the first of the other modes that the kernel has in
	// full.
	ModeAuto Mode = iota

	// ModeMulti attaches all sites by one uprobe_multi link, each with a BPF
	// cookie. It needs Linux 6.6 (kernel commit 89ae89f53d20).
	//
	// To attach to one process it needs Linux 6.10, or a stable kernel with
	// commit 46ba0e49b642. Other kernels would attach to one thread, so
	// attaching for a PID is [errors.ErrUnsupported] there.
	ModeMulti

	// ModeSingle attaches by perf events, with BPF cookies. It needs Linux 5.15
	// (kernel commit 7adfc6c9b315). Detaching takes about 0.1 s for each perf
	// event. Sites with one spec share a perf event where tracefs can be
	// written; without it each site has its own.
	ModeSingle

	// ModeSingleIPMap attaches by perf events. The program finds its site in a
	// hash map by the instruction pointer, so that all sites of a file share a
	// perf event where tracefs can be written. It works on all kernels that
	// this package supports, from Linux 5.10 on.
	//
	// The address of a site must be known before it is attached. It is known
	// for a program that is linked to a fixed address (ET_EXEC). For a shared
	// library or position-independent program it is known only for one process,
	// given by its PID, that has mapped the file already.
	ModeSingleIPMap
)

// String returns "auto", "multi+cookie", "single+cookie" or "single+ip".
func (m Mode) String() string {
	switch m {
	case ModeAuto:
		return "auto"
	case ModeMulti:
		return "multi+cookie"
	case ModeSingle:
		return "single+cookie"
	case ModeSingleIPMap:
		return "single+ip"
	default:
		return fmt.Sprintf("Mode(%d)", uint8(m))
	}
}

// Resolve asks the running kernel, by trying, whether it has a mode, and
// returns the mode that programs are attached in. For ModeAuto that is
// ModeMulti if its PID filter is right, see [ModeMulti]; else ModeSingle if
// there are BPF cookies; else ModeSingleIPMap. For the others it is the mode
// itself.
//
// The error wraps [errors.ErrUnsupported] if the kernel does not have the mode.
// It is a [*PermissionError] without CAP_BPF and CAP_PERFMON, or CAP_SYS_ADMIN.
func (m Mode) Resolve() (Mode, error) {
	if m > ModeSingleIPMap {
		return 0, fmt.Errorf("no such mode: %s", m)
	}
	kernel, err := askKernel()
	if err != nil {
		return 0, err
	}
	if m == ModeAuto {
		return kernel.best(), nil
	}
	return m, kernel.supports(m)
}

// cookie reports whether a program attached in this mode has a BPF cookie.
// Without one it knows its site by the instruction pointer only.
func (m Mode) cookie() bool { return m == ModeMulti || m == ModeSingle }
