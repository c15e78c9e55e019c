// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"time"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/terminal"
	"github.com/gousdt/gousdt/proc"
)

// Event is one hit of a probe. It is the caller's own, to keep and to change,
// unless SessionOptions.ReuseEvents is set. Only its Site is shared with other
// events, and must not be changed.
type Event struct {
	// Time is the time of the hit by the wall clock. It is computed from
	// Monotonic.
	Time time.Time
	// Monotonic is the time of the hit by the kernel's CLOCK_MONOTONIC: since
	// boot, without suspensions. In a time namespace it is the time of the
	// initial one.
	Monotonic time.Duration

	// PID and TID are the numbers of the process and the thread in the PID
	// namespace of the tracing process. They are 0 for processes of another PID
	// namespace, such as those of containers, unless the tracing process is in
	// the initial namespace, which numbers all processes.
	PID, TID int
	// Command is the name of the thread, at most 15 bytes. The bytes are
	// arbitrary: escape them before they reach a terminal.
	Command string
	// CPU is the number of the processor.
	CPU int

	// CgroupID is the ID of the control group of the process in the hierarchy
	// of version 2, if SessionOptions.CgroupIDs is set: the inode of its
	// directory below /sys/fs/cgroup.
	CgroupID uint64

	// Weight is the number of hits that the event stands for: itself and, if
	// SessionOptions.SampleEvery or SampleRate is set, the hits on its
	// processor before it that became no event. Otherwise it is 1. The weights
	// add up to all hits but those after the last event of each processor: to
	// estimate how many hits have some property, add up the weights of the
	// events that have it.
	Weight uint64

	// Probe is PROVIDER:NAME. Names are arbitrary bytes: escape them before
	// they reach a terminal. Site.Provider and Site.Name are the parts.
	Probe string
	// Site is the place that was hit. Attachment.Sites has the same one.
	Site *Site

	// Args are all arguments of the probe.
	Args []Value

	// Start is the hit that began what this one ends, if SessionOptions.Spans
	// asks for it, and otherwise nil. It has a Stack only with
	// SessionOptions.StartStacks, and its CPU is -1. If there were too many
	// calls at once to keep what it had, its arguments are Unreadable, and its
	// TID is 0 if it may have been of another thread.
	Start *Event
	// Duration is the time since Start.
	Duration time.Duration
	// Failed says that Site does not end what Start began as usual: it is a
	// probe that the [elfnote.PairPattern] has for calls that fail.
	Failed bool

	// Stack is the user stack, the innermost address first, if
	// SessionOptions.StackDepth asks for it. It is empty if the kernel could
	// not walk it.
	Stack []uint64

	// Registers and StackCopy are set if SessionOptions.StackCopy asks for
	// them. StackCopy is the memory of the user stack from the stack pointer
	// up. It ends early, and may be empty, where the stack ends or memory is
	// paged out.
	Registers proc.Registers
	StackCopy []byte
}

// Pair returns the pair of probes of a call, without their sites. Its Done is
// the probe that ends such calls as usual, also of one that has failed. It is
// the zero value for an event without a Start.
func (e *Event) Pair() (pair elfnote.Pair) {
	if e.Start == nil {
		return pair
	}
	start, done := e.Start.Site, e.Site
	pair.Start = elfnote.Probe{Provider: start.Provider, Name: start.Name}
	pair.Done = elfnote.Probe{Provider: done.Provider, Name: done.Name}
	if e.Failed && start.done != nil {
		pair.Done = *start.done
	}
	return pair
}

// String returns the probe, the process and the arguments in one line, as in
//
//	postgresql:query__start in process 7 (postgres): "SELECT 1"
//
// with the names of the arguments if SessionOptions.Definitions have them. The
// form may change. Bytes that would affect a terminal are escaped.
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
		b = append(b, separator...)
		if e.Site != nil && e.Site.definition != nil {
			b = append(append(b, e.Site.ArgumentName(i)...), '=')
		}
		b = arg.AppendTo(b)
	}
	return string(b)
}
