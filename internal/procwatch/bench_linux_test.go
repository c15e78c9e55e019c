// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
)

// crowd is a fixture of many processes with many mappings each, of which one in
// four is executable: what a large host looks like.
type crowd struct {
	*fixture
	processes []fakeProcess
}

const (
	crowdProcesses = 2000
	crowdMappings  = 200
)

func newCrowd(t testing.TB) *crowd {
	c := &crowd{fixture: newFixture(t)}
	dir := t.TempDir()
	var libs []string
	for i := range crowdMappings / 4 {
		lib := noProbes
		if i == 0 {
			lib = memoryProbes
		}
		libs = append(libs,
			lib.write(t, dir, fmt.Sprintf("lib-with-an-ordinary-name-%d.so.%d", i, i)))
	}
	for pid := 1; pid <= crowdProcesses; pid++ {
		p := fakeProcess{pid: pid, startTime: uint64(pid), size: 100 << 20, img: 0x5555_0000_0000}
		for i := range crowdMappings {
			m := code(0x7f00_0000_0000+uint64(i)<<20, libs[i/4])
			m.inode = uint64(i / 4)
			if i%4 != 1 {
				m.permissions, m.file = "r--p", ""
			}
			p.maps = append(p.maps, m)
		}
		c.put(p)
		c.processes = append(c.processes, p)
	}
	return c
}

// BenchmarkWatcher measures passes over 2,000 processes with 200 mappings each,
// of a fixture on the disk: files of the real /proc cost about the same to
// read.
func BenchmarkWatcher(b *testing.B) {
	crowd := newCrowd(b)
	started := func(b *testing.B) *Watcher {
		w := NewWatcher(&WatcherOptions{FS: crowd.fs()}, patterns(b, "otel_memory:*")...)
		b.Cleanup(func() { qt.Check(b, qt.IsNil(w.Close())) })
		qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
		qt.Assert(b, qt.HasLen(w.ProcessFiles(), crowdProcesses))
		b.ReportAllocs()
		b.ResetTimer()
		return w
	}
	// perPass has passes measured by the processor time that they take, which
	// other work on the machine changes less than the time on the clock.
	perPass := func(b *testing.B) func() {
		before := processorTime(b)
		return func() {
			perPass := (processorTime(b) - before).Seconds() / float64(b.N)
			b.ReportMetric(perPass*1000, "cpu-ms/op")
			// Of one core, if there is a pass every ten seconds.
			b.ReportMetric(perPass/10*100, "%core@10s")
		}
	}

	b.Run("first pass", func(b *testing.B) {
		b.ReportAllocs()
		defer perPass(b)()
		for b.Loop() {
			w := NewWatcher(&WatcherOptions{FS: crowd.fs()}, patterns(b, "otel_memory:*")...)
			qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
			qt.Check(b, qt.IsNil(w.Close()))
		}
	})
	// Nothing has changed; now and then the mappings are read all the same.
	b.Run("idle", func(b *testing.B) {
		w := started(b)
		defer perPass(b)()
		for b.Loop() {
			qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
		}
	})
	// Every process has had page faults since the last pass.
	b.Run("busy", func(b *testing.B) {
		w := started(b)
		defer perPass(b)()
		for b.Loop() {
			for _, p := range w.processes {
				p.minorFaults = 1 // else than in stat
			}
			qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
		}
	})
	// The address space of every process has another size than in the last
	// pass.
	b.Run("growing", func(b *testing.B) {
		w := started(b)
		defer perPass(b)()
		for b.Loop() {
			for _, p := range w.processes {
				p.size = 1 // else than in stat
			}
			qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
		}
	})
}

// processorTime is what the benchmark has taken so far, in the kernel too.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var usage unix.Rusage
	qt.Assert(b, qt.IsNil(unix.Getrusage(unix.RUSAGE_SELF, &usage)))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkRealProc measures the parts of a pass on a real process with 200
// mappings: the kernel writes what a fixture only holds.
func BenchmarkRealProc(b *testing.B) {
	h := startHelper(b, 0)
	lib := noProbes.write(b, b.TempDir(), "lib.so")
	for range crowdMappings / 4 {
		h.do("map", lib)
	}
	// Readable mappings for the other three quarters.
	for range crowdMappings * 3 / 4 {
		h.do("maps", lib)
	}
	w := NewWatcher(nil)
	defer w.Close()
	qt.Assert(b, qt.IsNil(w.Sync(b.Context(), h.pid)))
	buffers := newView().(*view)
	b.Run("stat", func(b *testing.B) {
		for b.Loop() {
			_, err := procfs.ReadStat(w.FS.Root(), h.pid, buffers.text)
			qt.Assert(b, qt.IsNil(err))
		}
	})
	b.Run("maps", func(b *testing.B) {
		for b.Loop() {
			_, err := procfs.ReadFiles(w.FS.Root(), h.pid, h.pid, buffers.lines, false, nil)
			qt.Assert(b, qt.IsNil(err))
		}
	})
	b.Run("sync", func(b *testing.B) {
		for b.Loop() {
			qt.Assert(b, qt.IsNil(w.Sync(b.Context(), h.pid)))
		}
	})
}

// BenchmarkRealProcesses measures a pass over many processes of the real /proc,
// most of which do nothing.
func BenchmarkRealProcesses(b *testing.B) {
	needWaitCode(b)
	path := traced(1).write(b, b.TempDir(), "program")
	for range 500 {
		p, err := startProgram(path)
		qt.Assert(b, qt.IsNil(err))
		b.Cleanup(func() { qt.Check(b, qt.IsNil(p.Close())) })
	}
	w := NewWatcher(nil, patterns(b, tracedProvider()+":*")...)
	defer w.Close()
	qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
	before := processorTime(b)
	for b.Loop() {
		qt.Assert(b, qt.IsNil(w.Sync(b.Context(), 0)))
	}
	perProcess := (processorTime(b) - before).Nanoseconds() / int64(b.N) / int64(len(w.processes))
	b.ReportMetric(float64(perProcess), "cpu-ns/process")
}
