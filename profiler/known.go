// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"errors"
	"math/bits"
	"time"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/asm"
	"go.opentelemetry.io/ebpf-profiler/support"

	"github.com/gousdt/gousdt/internal/procwatch"
)

// processes are maps of the tracer. It reads the processes that a program has
// put into events. Programs do so at the first hit, which has no stack.
type processes struct {
	events   *ebpf.Map // processes to be read
	reported *ebpf.Map // when; the tracer deletes a new one that it has read
	pages    *ebpf.Map // what it knows
}

// knownPatience is how long attaching waits for the tracer. In a [Profiler] it
// looks for processes each monitorInterval, which is long enough for no warning
// that a metric comes twice in a second. It reads large ones for a second.
const (
	knownPatience   = 10 * time.Second
	monitorInterval = 1500 * time.Millisecond
)

// find takes the maps from a program that refers to them, once rewrite has put
// them there.
func (p *processes) find(program asm.Instructions, rewrite func() error) error {
	names := []string{"pid_events", "reported_pids", "pid_page_to_mapping_info"}
	at := program.ReferenceOffsets() // which rewriting removes
	if err := rewrite(); err != nil {
		return err
	}
	for i, m := range []**ebpf.Map{&p.events, &p.reported, &p.pages} {
		if len(at[names[i]]) > 0 {
			*m, _ = program[at[names[i]][0]].Map().(*ebpf.Map)
		}
		if *m == nil {
			return errors.New("the profiler has no map " + names[i])
		}
	}
	return nil
}

// note has the tracer read processes, and returns those that it does not know.
// Errors are those of full maps: a process is read at its first hit then.
func (p *processes) note(pids ...int) (waiting []uint32) {
	for _, pid := range pids {
		id := uint32(pid)
		page := support.PIDPage{PrefixLen: support.BitWidthPID + 64, Pid: bits.ReverseBytes32(id)}
		if p.pages.Lookup(&page, new(support.PIDPageMappingInfo)) != nil &&
			p.reported.Update(id, uint64(0), ebpf.UpdateNoExist) == nil {
			waiting = append(waiting, id)
		}
		_ = p.events.Put(uint64(id)<<32|uint64(id), true)
	}
	return waiting
}

// await waits until the tracer has read processes.
func (p *processes) await(ctx context.Context, waiting []uint32) {
	for end := time.Now().Add(knownPatience); len(waiting) > 0 && time.Now().Before(end); {
		if p.reported.Lookup(waiting[0], new(uint64)) != nil {
			waiting = waiting[1:]
			continue
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// readAll has the tracer read the processes that are about to be attached.
func (p *Probe) readAll(ctx context.Context) {
	watcher := procwatch.NewWatcher(&procwatch.WatcherOptions{Filter: p.opts.Watch.Filter},
		p.patterns...)
	defer watcher.Close()
	_ = watcher.Sync(ctx, 0) // the watch has the same error
	var pids []int
	for _, pair := range watcher.ProcessFiles() {
		pids = append(pids, pair.Process.PID)
	}
	p.await(ctx, p.note(pids...))
}
