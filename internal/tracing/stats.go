// SPDX-License-Identifier: BSD-2-Clause

package tracing

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Stats are the costs of a session, as the kernel accounts for them.
type Stats struct {
	Programs   []ProgramStats // that are attached
	MapMemory  uint64         // bytes of all maps; an estimate before Linux 6.4
	PerfEvents int            // they decide how long Detach takes, see usdt.Link.PerfEvents

	// Filtered is true if SessionOptions.Filter was false for some hit. That
	// explains why no event came.
	Filtered bool

	// LostBy has the owners of events that found no room in the ring buffer,
	// those with the most first. It is empty without
	// trace.EventOptions.ShareRing. Of thousands of owners some may be missing.
	LostBy []OwnerLoss
}

// ProgramStats are the kernel's figures of a generated program.
type ProgramStats struct {
	// Name is the name of the program: a system profiler shows it as
	// bpf_prog_TAG_NAME.
	Name         string
	ID           uint32
	Instructions int    // that the verifier left, of 8 bytes; 0 if the kernel does not say
	Memory       uint64 // bytes

	// Runs and Time count the program's runs and their time while the kernel
	// measured it, for this process or another one. Time includes about 20 ns
	// of measuring for each run.
	Runs uint64
	Time time.Duration
	// Missed is the number of hits at which the program did not run because it,
	// or another BPF program, was running on the processor already (Linux
	// 5.12).
	Missed uint64
}

// An OwnerLoss counts the events of an owner that found no room in the ring
// buffer.
type OwnerLoss struct {
	CgroupID uint64 // 0 for the root: then User is the owner of the processes
	User     uint32
	Events   uint64
}

// String returns "12 of cgroup 4711" or "12 of user 1000".
func (l OwnerLoss) String() string {
	if l.CgroupID != 0 {
		return fmt.Sprintf("%d of cgroup %d", l.Events, l.CgroupID)
	}
	return fmt.Sprintf("%d of user %d", l.Events, l.User)
}

// Call is a call of package providers, which several probes can start and end,
// also inside each other. The outermost pair of them counts.
type Call[Argument any] struct {
	Provider string
	Name     string
	// Arguments are those of the start, whichever probe that is.
	Arguments []Argument
	// Pairs are the names of probes that start it, each with its end.
	Pairs [][2]string
	// Failed are probes that end it, too, where it fails.
	Failed []CallProbe
	// Attempts are probes that are passed before a call. If the call fails or
	// hangs before its start, it has started there. An attempt that does not
	// fail is no call, and ends where the probe is passed again.
	Attempts []CallProbe
}

// CallProbe is a probe that ends or announces a call.
type CallProbe struct {
	Name string
	// If is the condition, in the language of package trace, on which the probe
	// counts. If it is empty, the probe always counts.
	If string
}

// TypeName is the type of arguments that are names of C++ types, in definitions
// of package providers.
const TypeName = "cxx_type *"

// PointerAt splits the value of a probe's argument that is read from memory:
// arg1[1] is the second of the pointers that the second argument points to.
func PointerAt(value string) (argument, pointer int, ok bool) {
	name, index, _ := strings.Cut(strings.TrimSuffix(value, "]"), "[")
	number, ok := strings.CutPrefix(name, "arg")
	argument, err := strconv.Atoi(number)
	pointer, err2 := strconv.Atoi(index)
	const most = 64
	return argument, pointer, ok && err == nil && err2 == nil && strings.HasSuffix(value, "]") &&
		argument >= 0 && argument < most && pointer >= 0 && pointer < most
}
