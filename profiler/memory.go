// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
	"github.com/gousdt/gousdt/watch"
)

// The probes of allocators: alloc(pointer, size, weight) for a sampled
// allocation, and free(pointer) when it is freed. The weight is the number of
// bytes that the allocation stands for. Without a weight it stands for itself.
var (
	allocProbe = elfnote.Exact("otel_memory", "alloc")
	freeProbe  = elfnote.Exact("otel_memory", "free")
)

// Limits of what is remembered. Each owner, a container or user, may have half
// of what others leave of each.
const (
	// maxLive bounds the allocations that are remembered until they are freed,
	// and the frees whose allocation has not come. Each takes some 100 bytes.
	maxLive = 1 << 20
	// maxSiteBytes bounds the memory for stacks. A usual one takes 2 kB.
	maxSiteBytes = 256 << 20
)

// maxAllocation bounds a size and a weight, in bytes: no process has more
// memory.
const maxAllocation = 1 << 48

// late is longer than the stack of an allocation takes to arrive.
const late = 2 * time.Second

// sweepAfter is how many processes more have to be known until it is asked
// which of them still run.
const sweepAfter = 1024

// A MemorySite is a stack that has allocated. The numbers are at most
// math.MaxInt64.
type MemorySite struct {
	PID     int // of one process that has this stack
	Process string
	Frames  []stack.Frame // none for all stacks for which there was no room

	Allocs, AllocBytes int64 // allocations, and their bytes
	Frees, FreeBytes   int64 // those of them that were freed, or whose process has ended
}

// MemoryLosses counts what is missing in the numbers of a [Memory].
type MemoryLosses struct {
	// Frees are not known: the memory in use is less than the sites say.
	Frees uint64
	// Allocs are not known, or count as freed at once because there was no room
	// to remember them: the memory in use is more than the sites say.
	Allocs uint64
	// NoRoom is the part of Allocs without room. They are of owners that have
	// hundreds of thousands of allocations.
	NoRoom uint64
}

// Memory adds up allocations by stack, and those that were freed, in processes
// whose allocator has the probes otel_memory:alloc and otel_memory:free.
type Memory struct {
	probe *Probe
	frees *trace.Session
	watch *watch.Watch

	// find returns the owner of a process, and whether it runs.
	find func(pid int) (owner string, runs bool)

	mu        sync.Mutex
	processes map[int]*memoryProcess
	owners    map[string]*memoryOwner
	past      map[stackKey]*MemorySite // of processes that have ended
	other     MemorySite               // of stacks for which there was no room
	ended     []int                    // processes that have ended, in that order; stacks may still come
	all       memoryOwner              // the sum of all owners
	lost      MemoryLosses
	sweepAt   int // the number of processes at which sweep is called
	isClosed  bool

	reading sync.WaitGroup
	stop    context.CancelFunc
}

// memoryProcess is what is known of a process.
type memoryProcess struct {
	*memoryOwner
	sites map[stackKey]*MemorySite
	live  map[uint64]*allocation     // by pointer
	freed map[uint64][]time.Duration // times of frees that came before the allocation's stack
	swept time.Duration              // when freed was last rid of what is late

	ended time.Duration // when it ended last; 0 if it has not
	runs  bool          // it has allocated since, such as another process with its PID
}

// memoryOwner is what is remembered for an owner.
type memoryOwner struct {
	name               string
	processes          int
	live, freed, bytes int
}

// stackKey stands for a stack.
type stackKey [sha256.Size]byte

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
		find: func(pid int) (owner string, runs bool) {
			p, err := proc.Find("", pid)
			if errors.Is(err, proc.ErrGone) {
				return "", false
			}
			runs, err = p.IsRunning()
			return deadline.OwnerOf(procfs.FS("").Root(), pid), runs || err != nil
		}, sweepAt: sweepAfter,
		processes: make(map[int]*memoryProcess), owners: make(map[string]*memoryOwner),
		past: make(map[stackKey]*MemorySite), other: MemorySite{Process: "(other)"}}
}

// weight returns how many allocations and bytes an allocation stands for. A
// size or weight that cannot be is 0.
func weight(e *trace.Event) (objects, bytes int64) {
	if len(e.Args) < 2 {
		return 1, 0
	}
	possible := func(v trace.Value) int64 {
		if n := v.Int(); n >= 0 && n <= maxAllocation {
			return n
		}
		return 0
	}
	size := possible(e.Args[1])
	bytes = size
	if len(e.Args) > 2 {
		bytes = possible(e.Args[2])
	}
	if size == 0 {
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
	follow := m.probe.opts.Watch
	follow.Mapped = func(appeared, disappeared []*proc.ProcessFile) {
		m.end(disappeared)
		if mapped := m.probe.opts.Watch.Mapped; mapped != nil {
			mapped(appeared, disappeared)
		}
	}
	m.watch, err = watch.New(&follow, nil, m.frees.Part(freeProbe))
	if err != nil {
		return nil, err
	}
	if err := m.watch.Sync(ctx, 0); err != nil {
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
	pointer := s.Event.Args[0].Uint()
	objects, bytes := weight(s.Event)
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.process(s.Event.PID)
	site := m.site(p, s)
	a := &allocation{site: site, objects: objects, bytes: bytes, at: s.Event.Monotonic}
	site.Allocs = saturated(site.Allocs, objects)
	site.AllocBytes = saturated(site.AllocBytes, bytes)
	// Frees arrive before stacks: the allocation may have been freed already.
	frees := p.freed[pointer]
	for i, at := range frees {
		if at >= a.at {
			a.release()
			m.setFreed(p, pointer, frees[i+1:])
			return
		}
	}
	m.setFreed(p, pointer, nil)
	if p.ended > 0 && a.at <= p.ended {
		a.release()
		return
	}
	p.runs = true
	m.release(p, pointer, math.MaxInt64) // its free was lost
	if !hasRoom(p.memoryOwner.live, m.all.live, maxLive) {
		m.lost.NoRoom++
		a.release()
		return
	}
	p.live[pointer] = a
	p.memoryOwner.live++
	m.all.live++
}

// hasRoom reports whether an owner has less than half of what others leave.
func hasRoom(own, all, limit int) bool { return own < (limit-all+own)/2 }

func saturated(a, b int64) int64 {
	if a > math.MaxInt64-b {
		return math.MaxInt64
	}
	return a + b
}

// process returns what is known of a process.
func (m *Memory) process(pid int) *memoryProcess {
	if p := m.processes[pid]; p != nil {
		return p
	}
	if len(m.processes) >= m.sweepAt {
		m.sweep()
	}
	name, runs := m.find(pid)
	owner := m.owners[name]
	if owner == nil {
		owner = &memoryOwner{name: name}
		m.owners[name] = owner
	}
	owner.processes++
	p := &memoryProcess{memoryOwner: owner, runs: true, sites: make(map[stackKey]*MemorySite),
		live: make(map[uint64]*allocation), freed: make(map[uint64][]time.Duration)}
	m.processes[pid] = p
	if !runs {
		m.endAt(now(), pid)
	}
	return p
}

// sweep finds the processes that ended before the watch had noticed them.
func (m *Memory) sweep() {
	for pid, p := range m.processes {
		if _, runs := m.find(pid); p.runs && !runs {
			m.endAt(now(), pid)
		}
	}
	m.sweepAt = 2*len(m.processes) + sweepAfter
}

// now is the time on the clock of events.
func now() time.Duration {
	var clock unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &clock) // it has that clock
	return time.Duration(clock.Nano())
}

// release releases an allocation if there is one that was made by then, and
// reports whether there was.
func (m *Memory) release(p *memoryProcess, pointer uint64, until time.Duration) bool {
	a := p.live[pointer]
	if a == nil || a.at > until {
		return false
	}
	a.release()
	delete(p.live, pointer)
	p.memoryOwner.live--
	m.all.live--
	return true
}

// setFreed sets the times of the frees of a pointer whose allocation has not
// come.
func (m *Memory) setFreed(p *memoryProcess, pointer uint64, frees []time.Duration) {
	more := len(frees) - len(p.freed[pointer])
	p.memoryOwner.freed += more
	m.all.freed += more
	if p.freed[pointer] = frees; len(frees) == 0 {
		delete(p.freed, pointer)
	}
}

func (m *Memory) free(e *trace.Event) {
	if len(e.Args) == 0 {
		return
	}
	pointer := e.Args[0].Uint()
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.process(e.PID)
	if m.release(p, pointer, e.Monotonic) {
		return
	}
	// No stack comes that late: these allocations were not sampled.
	isLate := func(at time.Duration) bool { return at < e.Monotonic-late }
	if isLate(p.swept) {
		p.swept = e.Monotonic
		for pointer, frees := range p.freed {
			if isLate(frees[len(frees)-1]) {
				m.setFreed(p, pointer, nil)
			}
		}
	}
	frees := p.freed[pointer]
	for len(frees) > 0 && isLate(frees[0]) {
		frees = frees[1:]
	}
	if hasRoom(p.memoryOwner.freed, m.all.freed, maxLive) {
		frees = append(frees, e.Monotonic)
	} else {
		m.lost.Frees++
	}
	m.setFreed(p, pointer, frees)
}

// end releases the allocations of processes that have ended, or run another
// program.
func (m *Memory) end(disappeared []*proc.ProcessFile) {
	if len(disappeared) == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.isClosed {
		return // Close lets all disappear
	}
	at := now()
	for _, pair := range disappeared {
		m.process(pair.Process.PID)
		m.endAt(at, pair.Process.PID)
	}
}

// endAt releases the allocations that a known process had at a time. It forgets
// those that ended long before.
func (m *Memory) endAt(at time.Duration, pid int) {
	for len(m.ended) > 0 {
		first := m.ended[0]
		p := m.processes[first]
		if p != nil && p.ended >= at-late {
			break
		}
		m.ended = m.ended[1:]
		if p != nil && !p.runs {
			m.forget(first, p)
		}
	}
	p := m.processes[pid]
	if p == nil {
		return
	}
	p.ended, p.runs = at, false
	for pointer := range p.live {
		m.release(p, pointer, at)
	}
	m.ended = append(m.ended, pid)
}

// forget adds the sites of a process that has ended to those of others that
// had the same stacks.
func (m *Memory) forget(pid int, p *memoryProcess) {
	for pointer := range p.freed {
		m.setFreed(p, pointer, nil)
	}
	for key, site := range p.sites {
		past := m.past[key]
		if past == nil {
			name, _, _ := strings.Cut(site.Process, " (")
			site.Process = name + " (ended)"
			m.past[key] = site
			continue // its owner still has the memory
		}
		past.add(site)
		m.hold(p.memoryOwner, -site.size())
	}
	delete(m.processes, pid)
	if p.processes--; p.processes == 0 && p.bytes == 0 {
		delete(m.owners, p.name)
	}
}

func (s *MemorySite) add(other *MemorySite) {
	s.Allocs, s.AllocBytes = saturated(s.Allocs, other.Allocs), saturated(s.AllocBytes, other.AllocBytes)
	s.Frees, s.FreeBytes = saturated(s.Frees, other.Frees), saturated(s.FreeBytes, other.FreeBytes)
}

func (m *Memory) hold(owner *memoryOwner, bytes int) {
	owner.bytes += bytes
	m.all.bytes += bytes
}

func (a *allocation) release() {
	a.site.Frees = saturated(a.site.Frees, a.objects)
	a.site.FreeBytes = saturated(a.site.FreeBytes, a.bytes)
}

// size returns roughly how many bytes a site takes in memory.
func (s *MemorySite) size() int {
	size := 400
	for _, f := range s.Frames {
		size += 160 + len(f.Function) + len(f.File)
	}
	return size
}

// site returns the site of a stack of a process.
func (m *Memory) site(p *memoryProcess, s *Sample) *MemorySite {
	hash := sha256.New()
	fmt.Fprintf(hash, "%q", s.Event.Command)
	for _, f := range s.Frames {
		fmt.Fprintf(hash, "\x00%s", f.Function)
	}
	key := stackKey(hash.Sum(nil))
	site := p.sites[key]
	if site == nil {
		site = &MemorySite{PID: s.Event.PID, Frames: s.Frames,
			Process: fmt.Sprintf("%s (%d)", s.Event.Command, s.Event.PID)}
		if !hasRoom(p.bytes+site.size(), m.all.bytes, maxSiteBytes) {
			return &m.other
		}
		p.sites[key] = site
		m.hold(p.memoryOwner, site.size())
	}
	return site
}

// Profile calls add for each stack, and returns what is missing in the numbers.
// The processes that have ended share the sites of equal stacks. Call Profile
// after Profiler.Run.
func (m *Memory) Profile(add func(*MemorySite)) (MemoryLosses, error) {
	losses, err := m.frees.Losses()
	stats, failed := m.probe.Stats()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sweep()
	for _, p := range m.processes {
		for _, site := range p.sites {
			add(site)
		}
	}
	for _, site := range m.past {
		add(site)
	}
	if m.other.Allocs > 0 {
		add(&m.other)
	}
	lost := m.lost
	lost.Frees += losses.Events
	lost.Allocs = lost.NoRoom + stats.Lost + stats.NoStack
	return lost, errors.Join(err, failed)
}

// Close detaches from the probes of frees. Profiler.Close does the rest.
func (m *Memory) Close() error {
	if m.frees == nil {
		return nil
	}
	m.stop()
	m.mu.Lock()
	m.isClosed = true
	m.mu.Unlock()
	var err error
	if m.watch != nil {
		err = m.watch.Close()
	}
	err = errors.Join(err, m.frees.Close())
	m.reading.Wait()
	return err
}
