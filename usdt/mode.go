// SPDX-License-Identifier: BSD-2-Clause

package usdt

import "fmt"

// Mode says how programs are attached and how a program knows which site it was
// called from.
//
// The mode is chosen before programs are loaded, because the kernel wants a
// program for a uprobe_multi link to be loaded with another attach type than
// one for a perf event.
type Mode uint8

const (
	// ModeAuto picks the first of the other modes that the kernel supports in
	// full.
	ModeAuto Mode = iota

	// ModeMulti attaches all sites of one Attach by one uprobe_multi link, each
	// with a BPF cookie. Needs Linux 6.6 (kernel commit 89ae89f53d20), and 6.10
	// or a stable kernel that carries kernel commit 46ba0e49b642 for attaching
	// to one process with all its threads: without that, attaching for a PID is
	// an *UnsupportedError.
	ModeMulti

	// ModeSingle attaches each site by its own perf event, with a BPF cookie.
	// Needs Linux 5.15 (kernel commit 7adfc6c9b315).
	ModeSingle

	// ModeSingleIPMap attaches each site by its own perf event; the program
	// finds its site in a hash map by the instruction pointer. That address is
	// only known for programs linked to a fixed address (ET_EXEC) and, for
	// shared libraries and position-independent programs, for one process given
	// by PID that has the file mapped already. Works on all kernels that this
	// package is for, from Linux 5.10 on.
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

// cookie reports whether a program attached in this mode has a BPF cookie.
// Without one it knows its site by the instruction pointer only.
func (m Mode) cookie() bool { return m == ModeMulti || m == ModeSingle }
