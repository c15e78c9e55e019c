// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// The probes of allocators: alloc(pointer, size, weight) for a sampled
// allocation, and free(pointer) when it is freed. The weight is the number of
// bytes that the allocation stands for. Without a weight it stands for itself.
var (
	allocProbe = elfnote.Exact("otel_memory", "alloc")
	freeProbe  = elfnote.Exact("otel_memory", "free")
)

// maxLive bounds the allocations that are remembered until they are freed.
const maxLive = 1 << 20

// late is longer than the stack of an allocation takes to arrive.
const late = 2 * time.Second

// A MemorySite is a stack that has allocated.
type MemorySite struct {
	PID     int // of one process that has this stack
	Process string
	Frames  []stack.Frame

	Allocs, AllocBytes int64 // allocations, and their bytes
	Frees, FreeBytes   int64 // those of them that were freed, or whose process has ended
}

// Memory adds up allocations by stack, and those that were freed, in processes
// whose allocator has the probes otel_memory:alloc and otel_memory:free.
type Memory struct {
	probe *Probe
	frees *trace.Session
	watch *usdt.Watch

	mu    sync.Mutex
	sites map[string]*MemorySite
	live  map[int]map[uint64]*allocation // by process and pointer
	known int                            // how many are in live
	freed map[block][]time.Duration      // times of frees that came before the allocation's stack
	swept time.Duration                  // when freed was last rid of what is late
	ended map[int]time.Duration          // when processes ended whose stacks may still come
	lost  uint64                         // allocations that were not remembered, see maxLive

	reading sync.WaitGroup
	stop    context.CancelFunc
}

// block is memory of a process.
type block struct {
	pid     int
	pointer uint64
}

type allocation struct {
	site           *MemorySite
	objects, bytes int64
	at             time.Duration // when it was made
}

// NewMemory returns a Memory. The options must not be nil. Session.Filter
// applies to allocations. There must be no sampling, Spans or Value.
func NewMemory(opts *Options) *Memory {
	o := *opts
	o.SampleType, o.SampleUnit = "alloc_space", "bytes"
	o.Value = func(e *trace.Event) int64 { _, bytes := weight(e); return bytes }
	return &Memory{probe: USDT(&o, allocProbe), stop: func() {},
		sites: make(map[string]*MemorySite),
		live:  make(map[int]map[uint64]*allocation), freed: make(map[block][]time.Duration),
		ended: make(map[int]time.Duration)}
}

// weight returns how many allocations and bytes an allocation stands for.
func weight(e *trace.Event) (objects, bytes int64) {
	if len(e.Args) < 2 {
		return 1, 0
	}
	size := e.Args[1].Int()
	bytes = size
	if len(e.Args) > 2 {
		bytes = e.Args[2].Int()
	}
	if size <= 0 {
		return 1, bytes
	}
	return max(1, (bytes+size/2)/size), bytes
}

// Probe returns the Probe of allocations, for its Stats.
func (m *Memory) Probe() *Probe { return m.probe }

// Start attaches to the probes: first to those of frees, so that no free of a
// seen allocation is missed.
func (m *Memory) Start(ctx context.Context) (_ *Profiler, err error) {
	opts := m.probe.opts.Session
	opts.Filter = ""
	if m.frees, err = trace.New(&opts); err != nil {
		return nil, err
	}
	watch := m.probe.opts.Watch
	watch.Mapped = func(appeared, disappeared []*proc.ProcessFile) {
		m.end(disappeared)
		if mapped := m.probe.opts.Watch.Mapped; mapped != nil {
			mapped(appeared, disappeared)
		}
	}
	m.watch, err = trace.WatchSessions(&watch, nil,
		trace.WatchSession{Session: m.frees, Patterns: []elfnote.Pattern{freeProbe}})
	if err != nil {
		return nil, err
	}
	if err := m.watch.SyncAll(); err != nil {
		return nil, err
	}
	ctx, m.stop = context.WithCancel(ctx)
	m.reading.Go(func() {
		for event, err := range m.frees.Events(context.Background()) {
			if err == nil {
				m.free(event)
			}
		}
	})
	m.reading.Go(func() { _ = m.watch.Run(ctx, m.probe.interval()) })
	return Start(ctx, m.probe, &StartOptions{Handler: m.alloc})
}

func (m *Memory) alloc(s *Sample) {
	if len(s.Event.Args) < 2 {
		return
	}
	key := block{s.Event.PID, s.Event.Args[0].Uint()}
	objects, bytes := weight(s.Event)
	m.mu.Lock()
	defer m.mu.Unlock()
	site := m.site(s)
	site.Allocs += objects
	site.AllocBytes += bytes
	a := &allocation{site: site, objects: objects, bytes: bytes, at: s.Event.Monotonic}
	// Frees arrive before stacks: the allocation may have been freed already.
	frees := m.freed[key]
	delete(m.freed, key)
	for i, at := range frees {
		if at >= a.at {
			a.release()
			if i+1 < len(frees) {
				m.freed[key] = frees[i+1:]
			}
			return
		}
	}
	if at, ok := m.ended[key.pid]; ok && a.at <= at {
		a.release()
		return
	}
	m.release(key, math.MaxInt64) // its free was lost
	if m.known >= maxLive {
		m.lost++
		a.release()
		return
	}
	if m.live[key.pid] == nil {
		m.live[key.pid] = make(map[uint64]*allocation)
	}
	m.live[key.pid][key.pointer] = a
	m.known++
}

// release releases an allocation if there is one that was made by then, and
// reports whether there was.
func (m *Memory) release(key block, until time.Duration) bool {
	of := m.live[key.pid]
	a := of[key.pointer]
	if a == nil || a.at > until {
		return false
	}
	a.release()
	m.known--
	if delete(of, key.pointer); len(of) == 0 {
		delete(m.live, key.pid)
	}
	return true
}

func (m *Memory) free(e *trace.Event) {
	if len(e.Args) == 0 {
		return
	}
	key := block{e.PID, e.Args[0].Uint()}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.release(key, e.Monotonic) {
		return
	}
	// No stack comes that late: these allocations were not sampled.
	isLate := func(at time.Duration) bool { return at < e.Monotonic-late }
	if len(m.freed) >= maxLive && isLate(m.swept) {
		m.swept = e.Monotonic
		maps.DeleteFunc(m.freed, func(_ block, frees []time.Duration) bool {
			return isLate(frees[len(frees)-1])
		})
	}
	frees := m.freed[key]
	for len(frees) > 0 && isLate(frees[0]) {
		frees = frees[1:]
	}
	m.freed[key] = append(frees, e.Monotonic)
}

// end releases the allocations of processes that have ended, or run another
// program.
func (m *Memory) end(disappeared []*proc.ProcessFile) {
	if len(disappeared) == 0 {
		return
	}
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) // it has that clock
	now := time.Duration(clock.Nano())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.ended == nil {
		return // Close lets all disappear
	}
	maps.DeleteFunc(m.ended, func(_ int, at time.Duration) bool { return at < now-late })
	for _, pair := range disappeared {
		pid := pair.Process.PID
		m.ended[pid] = now
		for pointer := range m.live[pid] {
			m.release(block{pid, pointer}, now)
		}
	}
}

func (a *allocation) release() {
	a.site.Frees += a.objects
	a.site.FreeBytes += a.bytes
}

func (m *Memory) site(s *Sample) *MemorySite {
	var b strings.Builder
	fmt.Fprint(&b, s.Event.PID)
	for _, f := range s.Frames {
		b.WriteByte(0)
		b.WriteString(f.Function)
	}
	site := m.sites[b.String()]
	if site == nil {
		site = &MemorySite{PID: s.Event.PID, Frames: s.Frames,
			Process: fmt.Sprintf("%s (%d)", s.Event.Command, s.Event.PID)}
		m.sites[b.String()] = site
	}
	return site
}

// Profile calls add for each stack, and returns how many hits were lost. If
// some were, the allocations that are still live are not known. Call Profile
// after Profiler.Run.
func (m *Memory) Profile(add func(*MemorySite)) (lost uint64, err error) {
	losses, err := m.frees.Losses()
	m.mu.Lock()
	defer m.mu.Unlock()
	for site := range maps.Values(m.sites) {
		add(site)
	}
	return m.lost + losses.Events, err
}

// Close detaches from the probes of frees. Profiler.Close does the rest.
func (m *Memory) Close() error {
	if m.frees == nil {
		return nil
	}
	m.stop()
	m.mu.Lock()
	m.ended = nil
	m.mu.Unlock()
	var err error
	if m.watch != nil {
		err = m.watch.Close()
	}
	err = errors.Join(err, m.frees.Close())
	m.reading.Wait()
	return err
}
