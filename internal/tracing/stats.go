// SPDX-License-Identifier: BSD-2-Clause

package tracing

import (
	"fmt"
	"time"

	"github.com/cilium/ebpf"
)

// Stats is what a session costs, as the kernel accounts for it.
type Stats struct {
	Programs   []ProgramStats // that are attached
	MapMemory  uint64         // bytes of all maps; an estimate before Linux 6.4
	PerfEvents int            // see usdt.Link.PerfEvents: it says how long Detach takes

	// LostBy says whose events found no room in the ring buffer, those with the
	// most first. It is empty without trace.SessionOptions.ShareRing. Of
	// thousands of owners some may be missing.
	LostBy []OwnerLoss
}

// ProgramStats is what the kernel says of a generated program.
type ProgramStats struct {
	// Name is the name of the program: a system profiler shows it as
	// bpf_prog_TAG_NAME.
	Name         string
	ID           ebpf.ProgramID
	Instructions int    // that the verifier left, of 8 bytes; 0 if the kernel does not say
	Memory       uint64 // bytes

	// Runs and Time are how often and how long the program has run while the
	// kernel measured it, for this process or another one. Time includes about
	// 20 ns of measuring for each run.
	Runs uint64
	Time time.Duration
	// Missed is the number of hits at which the program did not run because it,
	// or another BPF program, was running on the processor already (Linux
	// 5.12).
	Missed uint64
}

// StatsOf asks the kernel for a program.
func StatsOf(prog *ebpf.Program) (p ProgramStats, err error) {
	info, err := prog.Info()
	if err != nil {
		return p, err
	}
	measured, err := prog.Stats()
	if err != nil {
		return p, err
	}
	p = ProgramStats{Name: info.Name, Runs: measured.RunCount, Time: measured.Runtime,
		Missed: measured.RecursionMisses}
	p.ID, _ = info.ID()
	p.Memory, _ = info.Memlock()
	if size, err := info.TranslatedSize(); err == nil {
		p.Instructions = size / 8
	}
	return p, nil
}

// An OwnerLoss says whose events found no room in the ring buffer.
type OwnerLoss struct {
	CgroupID uint64 // 0 for the root: then User says whose processes they are
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
