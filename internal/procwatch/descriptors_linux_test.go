// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/usdt/proc"
)

// Files beyond the share of descriptors are refused by name, and taken when
// there is room.
func TestWatcherLeavesDescriptorsForOthers(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.cache.limit = 6 // no owner takes more than it leaves
	dir := t.TempDir()
	for pid := 1; pid <= 5; pid++ {
		lib := memoryProbes.write(t, dir, fmt.Sprint(pid, ".so"))
		w.put(fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{code(0x1000, lib)}})
	}
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	refused := 0
	for _, line := range w.told {
		if strings.HasPrefix(line, "! ") {
			qt.Check(t,
				qt.Matches(line,
					`! process [1-5]: open ".*/[1-5]\.so": too many files with wanted probes are open: 3 of its container or user, and 3 altogether, for a limit of 24 descriptors .*`))
			refused++
		}
	}
	qt.Check(t, qt.Equals(refused, 2))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 3))
	for _, pair := range w.ProcessFiles()[:2] {
		w.remove(pair.Process.PID)
	}
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0))) // what ends is noticed last
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 3))
	qt.Check(t, qt.Equals(w.cache.opened, 3))
}

// An owner without open files finds room, however many others have open.
func TestWatcherSharesOutDescriptors(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.cache.limit = 16
	dir := t.TempDir()
	start := func(user, pid int) {
		lib := memoryProbes.write(t, dir, fmt.Sprint(pid, ".so"))
		w.put(fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{code(0x1000, lib)}})
		w.write(pid, "cgroup", fmt.Sprintf("0::/user.slice/user-%d.slice\n", user))
	}
	for pid := 1; pid <= 20; pid++ {
		start(1000, pid)
	}
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 8))
	for pid := 21; pid <= 40; pid++ {
		start(1001, pid)
	}
	w.told = nil
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	for _, line := range w.told { // none is said again because its numbers have changed
		qt.Check(t, qt.IsFalse(regexp.MustCompile(`^! process 1?\d:`).MatchString(line)),
			qt.Commentf(line))
	}
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 12))
	start(1002, 41)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 13))
	for _, pair := range w.ProcessFiles() {
		w.remove(pair.Process.PID)
	}
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.HasLen(w.cache.owners, 0))
}

// The watcher notices without a free descriptor that processes end, which frees
// some.
func TestWatcherNoticesEndsWithoutADescriptor(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, startTime: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.put(fakeProcess{pid: 2, startTime: 2, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})
	w.pass("+otel_memory", "+libstdcxx", "+1 memory.so", "+2 other.so")
	w.remove(1)

	var limit unix.Rlimit
	qt.Assert(t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)))
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &none)))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	_, err := os.Open(w.root)
	qt.Check(t, qt.ErrorIs(err, unix.EMFILE))
	w.told = nil
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 0), unix.EMFILE), qt.Commentf("told once for all processes"))
	told := w.told
	qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)))
	qt.Check(t, qt.DeepEquals(told, []string{"-1 memory.so", "-otel_memory"}))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1), qt.Commentf("what cannot be read is still there"))
}

// A process whose first thread has ended is not taken for one that has ended if
// the stat of its other threads cannot be opened.
func TestWatcherKeepsAProcessWhoseThreadsItCannotRead(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, state: 'Z', threads: 2, startTime: 9})
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(w.root, "1/task/2"), 0o755)))
	w.Filter = func(p proc.Process) bool { return p.PID == 1 }
	w.put(fakeProcess{pid: 2, threads: 2, size: 5, startTime: 9,
		maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 memory.so")

	// One descriptor is left, which the directory of the threads takes.
	var limit unix.Rlimit
	qt.Assert(t, qt.IsNil(unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)))
	next, err := os.Open(w.root)
	qt.Assert(t, qt.IsNil(err))
	one := unix.Rlimit{Cur: uint64(next.Fd()) + 1, Max: limit.Max}
	qt.Assert(t, qt.IsNil(next.Close()))
	qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &one)))
	defer unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)
	w.told = nil
	err = w.Sync(t.Context(), 0)
	told := w.told
	qt.Assert(t, qt.IsNil(unix.Setrlimit(unix.RLIMIT_NOFILE, &limit)))
	qt.Check(t, qt.ErrorIs(err, unix.EMFILE))
	qt.Check(t, qt.HasLen(told, 0))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
}

// A process that a runtime moves into the control group of a container before
// it executes the program of the container is the container's.
func TestWatcherFindsTheOwnerAnewAfterExec(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, startTime: 5, size: 1, img: 1000,
		maps: []fakeMap{w.at(0x1000, "memory.so")}}
	owner := func() string { return w.processes[1].owner }
	w.put(p)
	w.write(1, "cgroup", "0::/user.slice/user-1000.slice\n")
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.Equals(owner(), "/user.slice/user-1000.slice"))
	w.write(1, "cgroup", "0::/user.slice/user-1001.slice\n")
	p.img = 2000
	w.put(p)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.Equals(owner(), "/user.slice/user-1001.slice"))
}
