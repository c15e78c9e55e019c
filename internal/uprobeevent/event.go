// SPDX-License-Identifier: BSD-2-Clause

// Package uprobeevent makes one event of many uprobes, for kernels without
// uprobe_multi links. These take a tenth of a second to close each perf event,
// one after the other. A perf event has one place in a file, unless it is one
// for an event that was defined in tracefs: that has any number of places
// (Linux 5.4, kernel commit 60d53e2c3b75).
//
// The kernel keeps the definition of an event when the process that made it
// ends, and with it the traced file. [Remove] removes those of processes that
// have ended. The documentation of package usdt says how their names tell the
// owner.
//
// An event in use must not be removed. If it has several places the kernel does
// not check that, and goes on with memory that it has freed (by its sources,
// since kernel commit 60d53e2c3b75). So an event is removed only after the
// process that opened it and all that have inherited it have closed it, or
// after its owner has certainly ended.
package uprobeevent

import "fmt"

// A Place is a file offset that gets a breakpoint.
type Place struct {
	Offset    uint64
	Semaphore uint64 // file offset of the counter to be counted up, 0 for none
}

// Options say how a program is attached to an event.
type Options struct {
	PID     int  // 0 for all processes
	HasLink bool // the kernel has BPF links for perf events, and with them cookies (Linux 5.15)
	Cookie  uint64
}

// Group is the group of all events that this package defines, and their
// directory below "events" in tracefs.
const Group = "gousdt"

// owner is the process that has defined an event.
type owner struct {
	pid       int
	startTime uint64 // as in /proc/PID/stat
	namespace uint64 // inode of the PID namespace that pid is of
}

// name returns the name of the owner's n-th event. The kernel allows letters,
// digits and underscores, 63 of them.
func (o owner) name(n uint64) string {
	return fmt.Sprintf("p%d_%d_%d_%d", o.pid, o.startTime, o.namespace, n)
}

// parseName returns the owner of an event, and reports whether the name is one
// that this package has given.
func parseName(name string) (owner, bool) {
	var o owner
	var n uint64
	if _, err := fmt.Sscanf(name, "p%d_%d_%d_%d", &o.pid, &o.startTime, &o.namespace, &n); err != nil {
		return owner{}, false
	}
	// PIDs have 22 bits (PID_MAX_LIMIT).
	return o, o.pid > 0 && o.pid < 1<<30 && o.name(n) == name
}
