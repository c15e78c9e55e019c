// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cilium/ebpf"

	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// costs is what the tracing itself has cost. The kernel knows it of programs
// that are attached, so it has to be asked before any is detached.
type costs struct {
	mu       sync.Mutex
	programs map[ebpf.ProgramID]trace.ProgramStats
	maps     uint64           // memory of all maps, in bytes
	watch    *usdt.WatchStats // nil if no processes are followed
}

// ask asks the kernel, if costs are of interest.
func (c *costs) ask(t *tracer) {
	if !t.options.stats {
		return
	}
	stats, err := t.session.Stats()
	if err != nil {
		t.warnFailed(err)
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.programs == nil {
		c.programs = make(map[ebpf.ProgramID]trace.ProgramStats)
	}
	for _, p := range stats.Programs {
		c.programs[p.ID] = p
	}
	c.maps = stats.MapMemory
	if t.follower != nil && t.follower.watch != nil {
		watch := t.follower.watch.Stats()
		c.watch = &watch
	}
}

// all returns the programs in the order in which they were loaded.
func (c *costs) all() []trace.ProgramStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	var all []trace.ProgramStats
	for _, id := range slices.Sorted(maps.Keys(c.programs)) {
		all = append(all, c.programs[id])
	}
	return all
}

// memory returns what programs and maps take in the kernel, in bytes.
func (c *costs) memory() (programs, maps uint64) {
	for _, p := range c.all() {
		programs += p.Memory
	}
	return programs, c.maps
}

// perRun returns how long a program runs, on average, in nanoseconds.
func perRun(p *trace.ProgramStats) float64 {
	if p.Runs == 0 {
		return 0
	}
	return float64(p.Time/time.Nanosecond) / float64(p.Runs)
}

// text returns the costs as human-readable text.
func (c *costs) text() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-15s  %10s  %8s  %8s  %12s\n", "PROGRAM", "RUNS", "NS/RUN", "MISSED",
		"INSTRUCTIONS")
	for _, p := range c.all() {
		fmt.Fprintf(&b, "%-15s  %10d  %8.0f  %8d  %12d\n", p.Name, p.Runs, perRun(&p), p.Missed,
			p.Instructions)
	}
	programs, maps := c.memory()
	fmt.Fprintf(&b, "memory in the kernel: programs %d kB, maps %d kB\n", (programs+1023)/1024,
		(maps+1023)/1024)
	if w := c.watch; w != nil {
		fmt.Fprintf(&b,
			"of --limits: %d sites and %d descriptors in use; not attached: %d over a limit, %d that wait for their turn\n",
			w.Sites, w.Descriptors, w.OverLimit, w.Waiting)
	}
	return b.String()
}
