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

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/proc"
	"github.com/gousdt/gousdt/trace"
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

	var knownTotal, knownLive int64 // what was allocated before the unwinder knew the process
	for deadline := time.Now().Add(20 * time.Second); ; {
		knownTotal, knownLive = account(20)
		time.Sleep(300 * time.Millisecond)
		if stats, _ := memory.Probe().Stats(); stats.Matched > 0 {
			break
		}
		qt.Assert(t, qt.IsTrue(time.Now().Before(deadline)), qt.Commentf("no stack"))
	}
	var total, live int64
	for range 100 {
		total, live = account(10_000)
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
	qt.Check(t, qt.Equals(lost, 0))
	near := func(got, want int64) {
		t.Helper()
		qt.Check(t, qt.IsTrue(math.Abs(float64(got-want)) < 0.05*float64(want)),
			qt.Commentf("%d, want %d", got, want))
	}
	near(inUse, live-knownLive)
	near(allocated, total-knownTotal)
	near(pictures, total-knownTotal)
}

// Frees of allocations that were not selected take no more memory the longer
// they go on, and none of them is that of a later allocation.
func TestFreesOfOtherAllocationsAreForgotten(t *testing.T) {
	m := NewMemory(&Options{})
	hit := func(at time.Duration, args ...trace.Value) *trace.Event {
		return &trace.Event{PID: 1, Monotonic: at, Args: args}
	}
	pointer := trace.ValueOf(uint64(0x1000))
	now := time.Duration(0)
	for range 100_000 {
		now += time.Millisecond
		m.free(hit(now, pointer))
	}
	qt.Check(t, qt.IsTrue(len(m.freed[block{1, 0x1000}]) <= 2*int(late/time.Millisecond)),
		qt.Commentf("%d", len(m.freed[block{1, 0x1000}])))
	m.alloc(&Sample{Event: hit(now+1, pointer, trace.ValueOf(uint64(64)))})
	m.free(hit(now+2, pointer))
	for _, site := range m.sites {
		qt.Check(t, qt.Equals(site.Allocs, 1))
		qt.Check(t, qt.Equals(site.Frees, 1))
	}
	qt.Check(t, qt.HasLen(m.sites, 1))
}

// Of a process that has ended nothing is in use, also where the stack of an
// allocation comes later.
func TestProcessesThatHaveEndedUseNoMemory(t *testing.T) {
	m := NewMemory(&Options{})
	alloc := func(pid int, at time.Duration, pointer uint64) {
		m.alloc(&Sample{Event: &trace.Event{PID: pid, Monotonic: at,
			Args: []trace.Value{trace.ValueOf(pointer), trace.ValueOf(uint64(64))}}})
	}
	const later = time.Duration(math.MaxInt64) // another process with the same number
	alloc(1, 1, 0x1000)
	alloc(2, 1, 0x1000)
	m.end([]*proc.ProcessFile{{Process: proc.Process{PID: 1}}})
	alloc(1, 2, 0x2000)
	alloc(1, later, 0x3000)
	got := make(map[int][2]int64)
	for _, site := range m.sites {
		got[site.PID] = [2]int64{site.Allocs, site.Frees}
	}
	qt.Check(t, qt.DeepEquals(got, map[int][2]int64{1: {3, 2}, 2: {1, 0}}))
	qt.Check(t, qt.Equals(m.known, 2))
	qt.Check(t, qt.HasLen(m.live, 2))
	m.free(&trace.Event{PID: 2, Monotonic: 2, Args: []trace.Value{trace.ValueOf(uint64(0x1000))}})
	qt.Check(t, qt.HasLen(m.live, 1))
}

// What is known of other processes, and of many frees at a time, is not walked
// for each that ends or is freed.
func TestMemoryTakesNoLongerTheMoreIsKnown(t *testing.T) {
	m := NewMemory(&Options{})
	m.live[1] = make(map[uint64]*allocation)
	for i := range uint64(maxLive) {
		m.live[1][i] = &allocation{site: &MemorySite{}}
		m.freed[block{2, i}] = []time.Duration{late}
	}
	free := func(at time.Duration, pointer uint64) {
		m.free(&trace.Event{PID: 2, Monotonic: at, Args: []trace.Value{trace.ValueOf(pointer)}})
	}
	began := time.Now()
	free(3*late, 0) // the others are late
	once := time.Since(began)
	qt.Check(t, qt.HasLen(m.freed, 1))
	for i := range uint64(maxLive) {
		free(3*late, i)
	}
	began = time.Now()
	for i := range uint64(200) {
		free(3*late+1, maxLive+i)
		m.end([]*proc.ProcessFile{{Process: proc.Process{PID: 3}}})
	}
	took := time.Since(began)
	qt.Check(t, qt.IsTrue(took < 10*once), qt.Commentf("%v, a walk takes %v", took, once))
}
