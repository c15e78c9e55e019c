// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"debug/elf"
	"fmt"
	"time"

	"github.com/gousdt/gousdt/internal/terminal"
)

// Event is one hit of a probe. It is the caller's own, to keep and to change,
// unless SessionOptions.ReuseEvents is set. Only its Site is shared with other
// events, and must not be changed.
type Event struct {
	// Time is the wall clock's, from the monotonic clock and the difference of
	// both as it was about that time.
	Time time.Time
	// Monotonic is the kernel's CLOCK_MONOTONIC, the time since boot without
	// suspensions.
	Monotonic time.Duration

	// PID and TID are the process and the thread, as the PID namespace of this
	// process numbers them. They are 0 for those that are of another namespace,
	// in containers within the own one, too. The initial namespace numbers all.
	PID, TID int
	// Command is the thread's name, at most 15 bytes. They are arbitrary:
	// escape them before they reach a terminal.
	Command string
	// CPU is the processor that the thread ran on.
	CPU int

	// Probe is PROVIDER:NAME. Names are arbitrary bytes: escape them before they
	// reach a terminal. Site.Provider and Site.Name are the parts.
	Probe string
	// Site is the place that was hit. Attachment.Sites has the same one.
	Site *Site

	// Args are the arguments, all that the probe has.
	Args []Value

	// Stack is the user stack, the innermost address first, if
	// SessionOptions.StackDepth asks for it. It is empty where the kernel could
	// not walk it.
	Stack []uint64

	// Registers and StackCopy are there if SessionOptions.StackCopy asks for
	// them. The copy is of the user stack from the stack pointer up, as the
	// bytes lie in the traced process. It ends early, and may be empty, where
	// no memory follows or where some is paged out.
	Registers Registers
	StackCopy []byte
}

// Registers are those of the thread at a hit.
type Registers struct {
	// Machine is that of the kernel. A 32-bit program's registers are those of
	// the 64-bit machine, too.
	Machine elf.Machine
	// PC is the address of the site in the process, SP the stack pointer.
	PC, SP uint64
	// General are by the numbers that DWARF gives them. x86-64: rax, rdx, rcx,
	// rbx, rsi, rdi, rbp, rsp, r8 to r15; arm64: x0 to x30, sp; riscv64: x0 to
	// x31; s390x: r0 to r15.
	General []uint64
}

// String returns the probe, the process and the arguments in one line, as in
//
//	postgresql:query__start in process 7 (postgres): "SELECT 1"
//
// for a person: what it looks like may change. Bytes that would do something to
// a terminal are escaped.
func (e *Event) String() string {
	b := fmt.Appendf(nil, "%s in process %d", terminal.Escape(e.Probe), e.PID)
	if e.Command != "" {
		b = fmt.Appendf(b, " (%s)", terminal.Escape(e.Command))
	}
	for i, arg := range e.Args {
		separator := ", "
		if i == 0 {
			separator = ": "
		}
		b = arg.AppendTo(append(b, separator...))
	}
	return string(b)
}
