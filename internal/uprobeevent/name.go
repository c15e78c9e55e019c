// SPDX-License-Identifier: BSD-2-Clause

package uprobeevent

import (
	"fmt"
)

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
