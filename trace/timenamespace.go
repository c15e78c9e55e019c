// SPDX-License-Identifier: BSD-2-Clause

package trace

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

// clockOffsets is how far the clocks of a time namespace are ahead of those of
// the initial one, by which BPF programs measure.
type clockOffsets struct {
	monotonic, boot time.Duration
}

// ownClockOffsets returns the offsets of the time namespace of this process.
// They do not change while a process is in it.
var ownClockOffsets = sync.OnceValue(func() clockOffsets {
	// The kernel tells those of the namespace that new processes will be in.
	own, err := os.Readlink("/proc/self/ns/time")
	if err != nil {
		return clockOffsets{} // before Linux 5.6 there are no time namespaces
	}
	if of, err := os.Readlink("/proc/self/ns/time_for_children"); err != nil || of != own {
		return clockOffsets{}
	}
	text, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return clockOffsets{}
	}
	return parseClockOffsets(string(text))
})

// parseClockOffsets reads lines like "monotonic -86400 0": the name of a clock,
// seconds and nanoseconds.
func parseClockOffsets(text string) (o clockOffsets) {
	for line := range strings.Lines(text) {
		var name string
		var seconds, nanoseconds int64
		if _, err := fmt.Sscan(line, &name, &seconds, &nanoseconds); err != nil {
			continue
		}
		offset := time.Duration(seconds)*time.Second + time.Duration(nanoseconds)
		switch name {
		case "monotonic":
			o.monotonic = offset
		case "boottime":
			o.boot = offset
		}
	}
	return o
}
