// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"bytes"
	"slices"
	"time"
)

// Event is one hit of a probe.
type Event struct {
	// Time is the wall clock's, from the monotonic clock and the difference of both as it was about that time.
	Time time.Time
	// Monotonic is the kernel's CLOCK_MONOTONIC, the time since boot without suspensions.
	Monotonic time.Duration

	// PID and TID are the process and the thread, as the initial PID namespace numbers them.
	PID, TID int
	// Command is the thread's name, at most 15 bytes. They are arbitrary: escape them before they reach a terminal.
	Command string
	// CPU is the processor that the thread ran on.
	CPU int

	Probe *Probe
	Site  *Site
	// Cookie is that of the site.
	Cookie uint64

	// Args are the arguments, all that the probe has.
	Args []Value

	// Stack is the user stack, the innermost address first, if Options.StackDepth asks for it. It is empty where the
	// kernel could not walk it.
	Stack []uint64
}

// Clone returns a copy that stays valid when the iteration goes on.
func (e *Event) Clone() *Event {
	c := *e
	c.Args = slices.Clone(e.Args)
	for i := range c.Args {
		c.Args[i].data = bytes.Clone(c.Args[i].data)
	}
	c.Stack = slices.Clone(e.Stack)
	return &c
}
