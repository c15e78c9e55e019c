// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/ebpf-profiler/libpf"

	"github.com/gousdt/gousdt/internal/debuginfo"
	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/stack"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt/proc"
)

// compile compiles a program, or a library to preload.
func compile(t testing.TB, name string, flags ...string) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	args := append([]string{"-O1", "-o", out, "testdata/" + name + ".c"}, flags...)
	text, err := exec.Command(testneeds.Tool(t, "gcc", "gcc"), args...).CombinedOutput()
	qt.Assert(t, qt.IsNil(err), qt.Commentf("%s", text))
	return out
}

// TestMemory states that live bytes are within 5 % of the program's own account
// after a million allocations, at a period of 64 kB.
func TestMemory(t *testing.T) {
	allocator := compile(t, "allocator", "-shared", "-fPIC")
	program := compile(t, "allocate")
	t.Setenv("OTEL_MEMORY_PERIOD", "65536")
	p := run(t, "env", "LD_PRELOAD="+allocator, program)
	account := func(n int) (total, live int64) {
		fmt.Fprintln(p.in, n)
		_, err := fmt.Fscan(p.out, &total, &live)
		qt.Assert(t, qt.IsNil(err))
		return total, live
	}
	account(0) // it runs, as the process that env was
	memory := NewMemory(&Options{Watch: only(p.Process.Pid), Session: trace.SessionOptions{
		Events: &trace.EventOptions{Delay: 50 * time.Millisecond, RingSize: 64 << 20},
	}})
	defer memory.Close()
	running, err := memory.Start(t.Context())
	qt.Assert(t, qt.IsNil(err))
	defer running.Close()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- running.Run(ctx) }()

	// The program allocates faster than a race build reads stacks: it goes on
	// when all of its hits have one.
	waiting := func() (hits int, matched uint64) {
		qt.Assert(t, qt.IsNil(memory.probe.session.Drain(t.Context())))
		m := &memory.probe.matcher
		m.mu.Lock()
		defer m.mu.Unlock()
		return m.count, m.stats.Matched
	}
	var knownTotal, knownLive int64 // what was allocated before the unwinder knew the process
	testneeds.Await(t, 20*time.Second, "the unwinder knows the process", func() bool {
		_, matched := waiting()
		if matched == 0 {
			knownTotal, knownLive = account(20)
		}
		return matched > 0
	})
	var total, live int64
	for range 100 {
		total, live = account(10_000)
		testneeds.Await(t, 10*time.Second, "all stacks have come", func() bool {
			hits, _ := waiting()
			return hits == 0
		})
	}
	stop()
	qt.Assert(t, qt.IsNil(<-ended))

	var allocated, inUse, pictures int64
	lost, err := memory.Profile(func(s *MemorySite) {
		allocated += s.AllocBytes
		inUse += s.AllocBytes - s.FreeBytes
		for _, f := range s.Frames {
			if f.Function == "load_picture" {
				pictures += s.AllocBytes
			}
		}
	})
	qt.Assert(t, qt.IsNil(err))
	stats, err := memory.Probe().Stats()
	qt.Assert(t, qt.IsNil(err))
	t.Logf("allocated %d, of %d; live %d, of %d; %+v", allocated, total-knownTotal, inUse,
		live-knownLive, stats)
	qt.Check(t, qt.Equals(lost.Frees+lost.NoRoom, 0))
	near := func(got, want int64) {
		t.Helper()
		qt.Check(t, qt.IsTrue(math.Abs(float64(got-want)) < 0.05*float64(want)),
			qt.Commentf("%d, want %d", got, want))
	}
	near(inUse, live-knownLive)
	near(allocated, total-knownTotal)
	near(pictures, total-knownTotal)
}

// newMemory is a Memory of made-up processes. Each is an owner of its own, and
// none with a negative number runs.
func newMemory() *Memory {
	m := NewMemory(&Options{})
	m.find = func(pid int) (string, bool) { return fmt.Sprint(pid), pid > 0 }
	return m
}

func allocate(m *Memory, pid int, at time.Duration, args ...uint64) {
	e := &trace.Event{PID: pid, Monotonic: at, Command: "program"}
	for _, arg := range args {
		e.Args = append(e.Args, trace.ValueOf(arg))
	}
	m.alloc(&Sample{Event: e, Frames: []stack.Frame{{Function: fmt.Sprint("f", args[0]>>32)}}})
}

func freeOf(m *Memory, pid int, at time.Duration, pointer uint64) {
	m.free(&trace.Event{PID: pid, Monotonic: at, Args: []trace.Value{trace.ValueOf(pointer)}})
}

// Frees of allocations that were not selected take no more memory the longer
// they go on, and none of them is that of a later allocation.
func TestFreesOfOtherAllocationsAreForgotten(t *testing.T) {
	m := newMemory()
	now := time.Duration(0)
	for range 100_000 {
		now += time.Millisecond
		freeOf(m, 1, now, 0x1000)
	}
	p := m.processes[1]
	kept := m.all.freed
	qt.Check(t, qt.IsTrue(kept <= 2*int(late/time.Millisecond)), qt.Commentf("%d", kept))
	allocate(m, 1, now+1, 0x1000, 64)
	freeOf(m, 1, now+2, 0x1000)
	for _, site := range p.sites {
		qt.Check(t, qt.Equals(site.Allocs, 1))
		qt.Check(t, qt.Equals(site.Frees, 1))
	}
	qt.Check(t, qt.HasLen(p.sites, 1))
}

// Of a process that has ended nothing is in use, also where the stack of an
// allocation comes later, and where nobody noticed its end.
func TestProcessesThatHaveEndedUseNoMemory(t *testing.T) {
	m := newMemory()
	const later = time.Duration(math.MaxInt64) // another process with the same number
	allocate(m, 1, 1, 0x1000, 64)
	allocate(m, 2, 1, 0x1000, 64)
	m.end([]*proc.ProcessFile{{Process: proc.Process{PID: 1}}})
	allocate(m, 1, 2, 0x2000, 64)
	allocate(m, 1, later, 0x3000, 64)
	allocate(m, -3, 1, 0x1000, 64)
	got := make(map[int][2]int64)
	for _, p := range m.processes {
		for _, site := range p.sites {
			got[site.PID] = [2]int64{site.Allocs, site.Frees}
		}
	}
	qt.Check(t, qt.DeepEquals(got, map[int][2]int64{1: {3, 2}, 2: {1, 0}, -3: {1, 1}}))
	qt.Check(t, qt.Equals(m.all.live, 2))
	freeOf(m, 2, 2, 0x1000)
	qt.Check(t, qt.Equals(m.all.live, 1))
}

// The stacks of processes that have ended are added up: what is remembered does
// not grow with their number.
func TestMemoryOfProcessesThatHaveEnded(t *testing.T) {
	m := newMemory()
	running := make(map[int]bool)
	m.find = func(pid int) (string, bool) { return fmt.Sprint(pid), running[pid] }
	const processes = 5000
	for pid := 1; pid <= processes; pid++ {
		running[pid] = true
		allocate(m, pid, now(), 0x1000, 64)
		running[pid] = false // nobody notices
	}
	m.sweep()
	running[processes+1] = true
	m.process(processes + 1)
	m.endAt(now()+2*late, processes+1)
	qt.Check(t, qt.HasLen(m.processes, 1))
	qt.Check(t, qt.HasLen(m.past, 1))
	for _, site := range m.past {
		qt.Check(t, qt.Equals(site.Process, "program (ended)"))
		qt.Check(t, qt.Equals(site.Allocs, processes))
		qt.Check(t, qt.Equals(site.Frees, processes))
	}
	qt.Check(t, qt.IsTrue(m.all.bytes < 2000), qt.Commentf("%d bytes", m.all.bytes))
	qt.Check(t, qt.IsTrue(len(m.owners) <= 2), qt.Commentf("%d owners", len(m.owners)))
}

// A process with more allocations, frees or stacks than there is room for
// leaves room for those of others, and what is missing is counted.
func TestHostileUserWithManyAllocations(t *testing.T) {
	m := newMemory()
	for i := range uint64(maxLive) {
		allocate(m, 1, 1, i, 64)
		freeOf(m, 1, 1, 1<<40+i)
	}
	for i := range uint64(100_000) {
		allocate(m, 3, 1, i<<32, 64) // another stack each
	}
	qt.Check(t, qt.Equals(m.lost.NoRoom, maxLive/2))
	qt.Check(t, qt.Equals(m.lost.Frees, maxLive/2))
	for i := range uint64(1000) {
		allocate(m, 2, 1, i, 64)
		allocate(m, 2, 1, 1<<32+i, 64)
	}
	qt.Check(t, qt.HasLen(m.processes[2].live, 2000))
	qt.Check(t, qt.HasLen(m.processes[2].sites, 2))
}

// Sizes and weights that cannot be make no number negative.
func TestMemoryOfImpossibleSizes(t *testing.T) {
	m := newMemory()
	for i, args := range [][]uint64{
		{1 << 63, 1 << 63}, {1, math.MaxUint64 - 4}, {math.MaxUint64}, {1, maxAllocation},
	} {
		for range 100_000 {
			allocate(m, 1, 1, append([]uint64{uint64(i)}, args...)...)
		}
	}
	for _, site := range m.processes[1].sites {
		qt.Check(t, qt.IsTrue(site.AllocBytes >= site.FreeBytes && site.FreeBytes >= 0 &&
			site.Allocs >= site.Frees && site.Frees >= 0), qt.Commentf("%+v", site))
		qt.Check(t, qt.Equals(site.AllocBytes, math.MaxInt64))
	}
}

// What is known of other processes, and of many frees at a time, is not walked
// for each that ends or is freed.
func TestMemoryTakesNoLongerTheMoreIsKnown(t *testing.T) {
	m := newMemory()
	for i := range uint64(maxLive / 2) {
		allocate(m, 1, 1, i, 64)
		freeOf(m, 2, late, i)
	}
	began := time.Now()
	freeOf(m, 2, 3*late, 0) // the others are late
	once := time.Since(began)
	qt.Check(t, qt.HasLen(m.processes[2].freed, 1))
	for i := range uint64(maxLive / 2) {
		freeOf(m, 2, 3*late, i)
	}
	began = time.Now()
	for i := range uint64(200) {
		freeOf(m, 2, 3*late+1, maxLive+i)
		m.end([]*proc.ProcessFile{{Process: proc.Process{PID: 3}}})
	}
	took := time.Since(began)
	qt.Check(t, qt.IsTrue(took < 10*once), qt.Commentf("%v, a walk takes %v", took, once))
}

// Files whose functions are known are forgotten when others need the room, also
// files without functions.
func TestFilesAreForgotten(t *testing.T) {
	var f functionsOf
	file := func(n int) libpf.FrameMappingFile {
		return libpf.NewFrameMappingFile(libpf.FrameMappingFileData{FileID: libpf.NewFileID(uint64(n), 0)})
	}
	none := new(debuginfo.Functions)
	f.size = maxSize - 10*fileSize // of others
	for n := range 100 {
		f.add(file(n), none)
		f.at(file(0), 1)
		qt.Assert(t, qt.IsTrue(len(f.known) <= 10))
	}
	qt.Check(t, qt.IsNotNil(f.known[file(0)]), qt.Commentf("it is used"))
	qt.Check(t, qt.IsNil(f.known[file(1)]))
	qt.Check(t, qt.IsNotNil(f.known[file(99)]))
}
