// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

// block makes reading the mappings of a process block: they are a pipe that is
// never written to. unblock ends that.
func (w *watch) block(p fakeProcess, container string) (unblock func()) {
	w.t.Helper()
	w.put(p)
	w.write(p.pid, "cgroup", "0::/system.slice/docker-"+strings.Repeat(container, 64)+".scope\n")
	path := filepath.Join(w.root, strconv.Itoa(p.pid), "maps")
	hidden := path + ".real"
	qt.Assert(w.t, qt.IsNil(os.Rename(path, hidden)))
	qt.Assert(w.t, qt.IsNil(unix.Mkfifo(path, 0o600)))
	pipe, err := os.OpenFile(path, os.O_RDWR, 0)
	qt.Assert(w.t, qt.IsNil(err))
	unblock = sync.OnceFunc(func() {
		qt.Check(w.t, qt.IsNil(os.Rename(hidden, path)))
		qt.Check(w.t, qt.IsNil(pipe.Close())) // readers are at the end
	})
	w.t.Cleanup(unblock)
	return unblock
}

// impatience is how long a watcher waits for a process that will not answer.
const impatience = 50 * time.Millisecond

func TestWatcherSetsAsideProcessesThatBlock(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.patience = impatience
	var unblock []func()
	for pid := 1; pid <= 10; pid++ {
		p := fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{w.at(0x1000, "memory.so")}}
		unblock = append(unblock, w.block(p, "a"))
	}
	unblock = append(unblock, w.block(fakeProcess{pid: 11, startTime: 7, size: 1,
		maps: []fakeMap{w.at(0x1000, "memory.so")}}, "b"))
	w.put(fakeProcess{pid: 20, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})

	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	// A busy machine may have kept the scan of the last one waiting, too.
	w.await(func() bool { return len(w.ProcessFiles()) == 1 })
	told := slices.DeleteFunc(w.told,
		func(line string) bool { return strings.HasPrefix(line, "! process 20: ") })
	slices.Sort(told)
	qt.Assert(t, qt.HasLen(told, 13), qt.Commentf("an error for each of them"))
	for _, line := range told[:11] {
		qt.Check(t,
			qt.Matches(line, "! process [0-9]+: scan: no answer from the process or its files .*"))
	}
	qt.Check(t, qt.DeepEquals(told[11:], []string{"+20 other.so", "+libstdcxx"}))
	w.told = nil
	stats := w.Stats()
	qt.Check(t, qt.Equals(stats.Blocked, 3), qt.Commentf("two of one container, one of another"))
	qt.Check(t, qt.Equals(stats.Postponed, 8))

	// They cost nothing more, and are reported once.
	w.pass()
	qt.Check(t, qt.Equals(w.Stats().Blocked, 3))
	for pid := 1; pid <= 10; pid++ {
		qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), pid), procfs.ErrBlocked))
	}
	qt.Check(t, qt.Equals(w.Stats().Blocked, 3))

	// Processes that go on are scanned.
	ctx, stop := context.WithCancel(t.Context())
	w.scanning.Lock()
	w.patience = scansAnswer
	w.Handler = func(*Changes) {
		if len(w.ProcessFiles()) == 12 {
			stop()
		}
	}
	w.scanning.Unlock()
	for _, f := range unblock {
		f()
	}
	qt.Check(t, qt.IsNil(w.Run(ctx, time.Millisecond)))
	qt.Check(t, qt.Equals(w.Stats().Blocked, 0))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 12))
}

func TestPatientWatcherWaitsForTheProcessAskedFor(t *testing.T) {
	slow := func(proc.Process) bool { time.Sleep(4 * impatience); return true }
	w := newWatch(t, WatcherOptions{Filter: slow, Patient: true}, "*:*")
	w.patience = impatience
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})
	qt.Check(t, qt.IsNil(w.Sync(t.Context(), 1)))
}

func TestPatientWatcherWaitsForWhatTheFilterLetsThrough(t *testing.T) {
	w := newWatch(t, WatcherOptions{Patient: true}, "*:*")
	w.patience = impatience
	unblock := w.block(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}}, "a")
	time.AfterFunc(4*impatience, unblock)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.told, 0), qt.Commentf("that it does not answer would be told"))
	qt.Check(t, qt.Equals(w.Stats().Blocked, 0))
}

// Within exec there is a moment in which the old program is gone and the new
// one is not mapped yet.
func TestWatcherWaitsForAProgramThatIsBeingExecuted(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, size: 1, img: 7, maps: []fakeMap{w.at(0x1000, "other.so")}}
	w.put(p)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	w.told = nil
	w.put(fakeProcess{pid: 1, size: 1})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	qt.Check(t, qt.HasLen(w.told, 0))
	p.img, p.maps[0].start, p.maps[0].end = 9, 0x5000, 0x6000
	w.put(p)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.DeepEquals(w.told, []string{"~1 other.so"}))
	w.put(fakeProcess{pid: 1}) // it has ended
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.DeepEquals(w.told, []string{"~1 other.so", "-1 other.so", "-libstdcxx"}))
}

// What is read of a process while it executes a program may be of either.
func TestWatcherReadsAProgramThatIsExecutedMeanwhile(t *testing.T) {
	meanwhile := func() {}
	w := newWatch(t, WatcherOptions{Filter: func(proc.Process) bool { meanwhile(); return true }}, "*:*")
	p := fakeProcess{pid: 1, size: 1, img: 7, maps: []fakeMap{w.at(0x1000, "other.so")}}
	w.put(p)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	w.told = nil
	p.img, p.maps[0].start, p.maps[0].end = 9, 0x5000, 0x6000
	meanwhile = sync.OnceFunc(func() { w.put(p) })
	w.put(fakeProcess{pid: 1, size: 1, img: 8})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	qt.Check(t, qt.HasLen(w.told, 0))
	for range 2 {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
		qt.Check(t, qt.DeepEquals(w.told, []string{"~1 other.so"}))
	}
}

// While it runs, one process of each owner is reported that does not answer,
// and one that waits for others.
func TestWatcherReportsBlockedProcessesByOwner(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.patience = impatience
	w.running.Add(1)
	defer w.running.Add(-1)
	for pid := 1; pid <= 10; pid++ {
		w.block(fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{w.at(0x1000, "memory.so")}}, []string{"a", "b"}[pid%2])
	}
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.told, 4), qt.Commentf("%q", w.told))
}

// A process that gets the number of one that is set aside is scanned.
func TestWatcherScansAProcessThatGotTheNumberOfABlockedOne(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.patience = impatience
	unblock := w.block(fakeProcess{pid: 1, startTime: 1, size: 1,
		maps: []fakeMap{w.at(0x1000, "memory.so")}}, "a")
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.Equals(w.Stats().Blocked, 1))
	qt.Assert(t, qt.IsNil(os.Remove(filepath.Join(w.root, "1/maps"))))
	w.put(fakeProcess{pid: 1, startTime: 2, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})
	w.patience = scansAnswer
	w.pass("+libstdcxx", "+1 other.so")
	qt.Check(t, qt.Equals(w.Stats().Blocked, 0))
	qt.Assert(t, qt.IsNil(os.Rename(filepath.Join(w.root, "1/maps"),
		filepath.Join(w.root, "1/maps.real"))))
	unblock()
	w.pass() // the new process has no pairs of the old one
}

func TestWatcherEndsWhileAProcessBlocks(t *testing.T) {
	found := make(chan struct{}, 1)
	w := newWatch(t,
		WatcherOptions{Filter: func(proc.Process) bool { found <- struct{}{}; return true }}, "*:*")
	w.patience = time.Hour
	w.block(fakeProcess{pid: 1, startTime: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}},
		"a")
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error)
	go func() { ran <- w.Run(ctx, time.Hour) }()
	<-found
	cancel()
	qt.Check(t, qt.IsNil(<-ran))
	qt.Check(t, qt.IsNil(w.Close()))
}
