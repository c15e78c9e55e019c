// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

func TestWatcherTellsPairsAndFiles(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "otel_memory:*")
	openings := countOpenings(t, filepath.Dir(w.libs["memory.so"]))
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so"),
		w.at(0x2000, "other.so"), w.at(0x3000, "plain.so")}})
	w.put(fakeProcess{pid: 2, size: 1, maps: []fakeMap{w.at(0x1000, "plain.so"),
		w.at(0x2000, "memory.so")}})
	w.put(fakeProcess{pid: 3, size: 1, maps: []fakeMap{w.at(0x1000, "plain.so")}})
	w.put(fakeProcess{pid: 4}) // of the kernel
	w.pass("+otel_memory", "+1 memory.so", "+2 memory.so")
	w.pass()

	pairs := w.ProcessFiles()
	qt.Assert(t, qt.HasLen(pairs, 2))
	p := pairs[1]
	qt.Check(t, qt.Equals(p.Process.PID, 2))
	qt.Check(t, qt.Equals(p.Path, w.libs["memory.so"]))
	qt.Check(t, qt.Equals(p.OpenedPath, w.root+"/2/map_files/2000-3000"))
	qt.Check(t, qt.DeepEquals(p.Mappings, []procfs.Mapping{{Start: 0x2000, End: 0x3000, Offset: 0}}))
	qt.Check(t, qt.Equals(p.File, pairs[0].File))
	qt.Check(t, qt.Equals(openings(), 3), qt.Commentf("each file once"))

	w.remove(1)
	w.pass("-1 memory.so")
	w.remove(2)
	w.pass("-2 memory.so", "-otel_memory") // the file is open while the handler runs
	qt.Check(t, qt.HasLen(w.cache.files, 0))

	qt.Check(t, qt.HasLen(w.processes, 2))
	qt.Check(t, qt.Equals(w.Stats().Passes, 4))
}

func TestWatcherWithoutPatternsWantsAllProbes(t *testing.T) {
	w := newWatch(t, WatcherOptions{})
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so"),
		w.at(0x2000, "other.so"), w.at(0x3000, "plain.so")}})
	w.pass("+otel_memory", "+libstdcxx", "+1 memory.so", "+1 other.so")
}

func TestWatcherTellsOnlyTheFilesWanted(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "nothing:*", "*:free")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so"),
		w.at(0x2000, "other.so")}})
	w.pass("+otel_memory", "+1 memory.so")
}

func TestWatcherReadsNothingAgainWhenNothingChanged(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "otel_memory:*")
	var pids []int
	for pid := 1; pid <= 20; pid++ {
		w.put(fakeProcess{pid: pid, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
		pids = append(pids, pid)
	}
	reads := w.countReads(pids...)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Assert(t, qt.Equals(reads(), 20))
	for range busyPasses + 5 {
		w.pass()
	}
	qt.Check(t, qt.Equals(reads(), 0))
	for range idlePasses {
		w.pass()
	}
	qt.Check(t, qt.Equals(reads(), 20), qt.Commentf("once more within idlePasses"))
}

func TestWatcherComparesTheMappingsOfAProcessWhoseSizeChanged(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "otel_memory:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	p.size = 2 // as malloc does
	w.put(p)
	reads := w.countReads(1)
	w.pass()
	qt.Check(t, qt.Equals(reads(), 1), qt.Commentf("the executable mappings are the same"))
}

func TestWatcherFindsWhatIsLoadedAndUnloaded(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "otel_memory:*", "libstdcxx:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "plain.so")}}
	w.put(p)
	w.pass()
	p.size, p.maps = 2, append(p.maps, w.at(0x2000, "memory.so"))
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	p.size, p.maps = 3, append(p.maps, w.at(0x3000, "other.so"))
	w.put(p)
	w.pass("+libstdcxx", "+1 other.so")
	p.size, p.maps = 4, slices.Delete(slices.Clone(p.maps), 1, 2)
	w.put(p)
	w.pass("-1 memory.so", "-otel_memory")
}

func TestWatcherFindsWhatReplacedAMappingOfTheSameSize(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "otel_memory:*", "libstdcxx:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	p.maps = []fakeMap{w.at(0x1000, "other.so")}
	p.faults = 1 // without which it cannot run
	w.put(p)
	w.told = nil
	for range busyPasses {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Check(t, qt.ContentEquals(w.told, []string{"+libstdcxx", "+1 other.so", "-1 memory.so",
		"-otel_memory"}))

	p.maps = []fakeMap{w.at(0x1000, "memory.so")}
	w.put(p)
	w.told = nil
	for range idlePasses {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Check(t, qt.ContentEquals(w.told, []string{"-libstdcxx", "-1 other.so", "+1 memory.so",
		"+otel_memory"}), qt.Commentf("even without a fault"))
}

func TestWatcherFindsANewFileOfTheSameInodeNumber(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	m := w.at(0x1000, "memory.so")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{m}})
	w.pass("+otel_memory", "+1 memory.so")
	// The line in maps stays the same.
	m.file = w.libs["other.so"]
	w.put(fakeProcess{pid: 1, size: 1, faults: 1, maps: []fakeMap{m}})
	w.told = nil
	for range busyPasses {
		qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	}
	qt.Check(t, qt.ContentEquals(w.told, []string{"+libstdcxx", "+1 memory.so", "-1 memory.so",
		"-otel_memory"}))
}

func TestWatcherFindsExec(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, startTime: 5, size: 1, img: 1000,
		maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 memory.so")
	w.put(fakeProcess{pid: 1, startTime: 5, size: 1, img: 2000,
		maps: []fakeMap{w.at(0x1000, "other.so")}})
	w.pass("+libstdcxx", "+1 other.so", "-1 memory.so", "-otel_memory")
}

// A process that executes the same program again maps a file anew for the user
// of a watch, with or without address space layout randomization. A file that
// has only moved is the same.
func TestWatcherFindsExecOfTheSameFile(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	var appeared, disappeared []*proc.ProcessFile
	report := Report(func(a, d []*proc.ProcessFile) {
		appeared, disappeared = append(appeared, a...), append(disappeared, d...)
	})
	handler := w.Handler
	w.Handler = func(c *Changes) { handler(c); report(c) }
	p := fakeProcess{pid: 1, size: 1, img: 1000, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	for i, step := range []struct{ size, image, address uint64 }{
		{1, 2000, 0x2000}, {2, 2000, 0x3000}, {2, 3000, 0x3000}} {
		p.size, p.img, p.maps[0] = step.size, step.image, w.at(step.address, "memory.so")
		w.put(p)
		w.pass("~1 memory.so")
		qt.Check(t, qt.HasLen(appeared, []int{2, 2, 3}[i]))
		qt.Check(t, qt.HasLen(disappeared, []int{1, 1, 2}[i]))
	}
	w.pass()
}

func TestWatcherFindsThatAPIDWasUsedAgain(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	openings := countOpenings(t, filepath.Dir(w.libs["memory.so"]))
	w.put(fakeProcess{pid: 1, startTime: 5, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 memory.so")
	old := w.ProcessFiles()[0]
	w.put(fakeProcess{pid: 1, startTime: 6, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+1 memory.so", "-1 memory.so") // the file stays attached to
	new := w.ProcessFiles()[0]
	qt.Check(t, qt.Equals(old.File, new.File))
	qt.Check(t, qt.Equals(old.key(), pairKey{ID{PID: 1, StartTime: 5}, old.File}))
	qt.Check(t, qt.Equals(new.key(), pairKey{ID{PID: 1, StartTime: 6}, old.File}))
	qt.Check(t, qt.Equals(openings(), 1))
}

func TestWatcherFindsThatAProcessEndedButWasNotWaitedFor(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, size: 1, img: 7, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 memory.so")
	w.put(fakeProcess{pid: 1, state: 'Z'})
	w.pass("-1 memory.so", "-otel_memory")
}

func TestWatcherSeesAProcessWhoseFirstThreadHasEnded(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, threads: 2, size: 5, startTime: 9, img: 7,
		maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	w.put(fakeProcess{pid: 1, state: 'Z', threads: 2, startTime: 9})
	qt.Assert(t, qt.IsNil(os.MkdirAll(filepath.Join(w.root, "1/task/2"), 0o755)))
	p.pid, p.startTime = 2, 10
	// The kernel does not list the directory of a thread; this fixture has to.
	w.Filter = func(p proc.Process) bool { return p.PID == 1 }
	w.put(p)
	w.pass()
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 1))
	p.size, p.maps = 6, append(p.maps, w.at(0x2000, "other.so"))
	w.put(p)
	w.pass("+libstdcxx", "+1 other.so")

	// The thread that is read may end while it is: there may be others.
	maps, gone := filepath.Join(w.root, "2/maps"), filepath.Join(w.root, "gone")
	qt.Assert(t, qt.IsNil(os.Rename(maps, gone)))
	w.Sync(t.Context(), 1)
	qt.Assert(t, qt.IsNil(os.Rename(gone, maps)))
	w.pass()
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 2))
	w.remove(2)
	w.pass("-1 memory.so", "-1 other.so", "-otel_memory", "-libstdcxx")
}

func TestWatcherTellsWhenAFileIsMappedElsewhere(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 memory.so")
	key := w.ProcessFiles()[0].key()
	w.put(fakeProcess{pid: 1, size: 2, maps: []fakeMap{w.at(0x5000, "memory.so"),
		w.at(0x7000, "memory.so")}})
	w.pass("~1 memory.so")
	p := w.ProcessFiles()[0]
	qt.Check(t, qt.DeepEquals(p.Mappings, []procfs.Mapping{
		{Start: 0x5000, End: 0x6000}, {Start: 0x7000, End: 0x8000}}))
	qt.Check(t, qt.Equals(p.key(), key))
}

func TestWatcherTakesTwoPathsOfOneFileForOne(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	link := filepath.Join(t.TempDir(), "link.so")
	qt.Assert(t, qt.IsNil(os.Link(w.libs["memory.so"], link)))
	w.put(fakeProcess{pid: 1, size: 1,
		maps: []fakeMap{code(0x5000, link), w.at(0x1000, "memory.so")}})
	w.pass("+otel_memory", "+1 link.so")
	qt.Check(t, qt.DeepEquals(w.ProcessFiles()[0].Mappings, []procfs.Mapping{
		{Start: 0x1000, End: 0x2000}, {Start: 0x5000, End: 0x6000}}))
	w.put(fakeProcess{pid: 1, size: 2, maps: []fakeMap{code(0x5000, link)}})
	w.pass("~1 link.so")
}

func TestWatcherAsksTheFilterAboutProcessesAndNewImages(t *testing.T) {
	asked := 0
	w := newWatch(t,
		WatcherOptions{Filter: func(p proc.Process) bool { asked++; return p.Command == "wanted" }},
		"*:*")
	p := fakeProcess{pid: 1, size: 1, command: "shell", maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.put(fakeProcess{pid: 2, command: "wanted"}) // of the kernel
	reads := w.countReads(1, 2)
	w.pass()
	w.pass()
	qt.Check(t, qt.Equals(asked, 1))
	qt.Check(t, qt.Equals(reads(), 0), qt.Commentf("what is not wanted is not read"))
	p.command = "wanted"
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	qt.Check(t, qt.Equals(asked, 2))
	p.img = 8
	w.put(p)
	w.pass("~1 memory.so")
	qt.Check(t, qt.Equals(asked, 3))
	p.command = "unwanted"
	w.put(p)
	w.pass("-1 memory.so", "-otel_memory")
	p.size = 17
	w.put(p)
	w.pass()
}

func TestWatcherSyncLooksAtOneProcess(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.put(fakeProcess{pid: 2, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 2)))
	qt.Assert(t, qt.DeepEquals(w.told, []string{"+otel_memory", "+2 memory.so"}))
	// No sign in stat.
	w.put(fakeProcess{pid: 2, size: 1, maps: []fakeMap{w.at(0x1000, "other.so")}})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 2)))
	qt.Assert(t, qt.DeepEquals(w.told[2:], []string{"+libstdcxx", "+2 other.so", "-2 memory.so",
		"-otel_memory"}))
	w.remove(2)
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 2)))
	qt.Assert(t, qt.DeepEquals(w.told[6:], []string{"-2 other.so", "-libstdcxx"}))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 77)))
	w.pass("+otel_memory", "+1 memory.so")
}

func TestWatcherCloseUndoesEverything(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	w.put(fakeProcess{pid: 2, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so"),
		w.at(0x2000, "other.so")}})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	w.told = nil
	qt.Assert(t, qt.IsNil(w.Close()))
	qt.Check(t, qt.ContentEquals(w.told, []string{"-1 memory.so", "-2 memory.so", "-2 other.so",
		"-otel_memory", "-libstdcxx"}))
	qt.Check(t, qt.HasLen(w.cache.files, 0))
	w.told = nil
	qt.Check(t, qt.IsNil(w.Close()))
	qt.Check(t, qt.HasLen(w.told, 0))
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 0), os.ErrClosed))
	qt.Check(t, qt.ErrorIs(w.Sync(t.Context(), 1), os.ErrClosed))
	qt.Check(t, qt.IsNil(w.Run(t.Context(), 1)))
}

func TestWatcherHandlerMayAskAndHold(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	var held *CachedFile
	counts := map[string]int{}
	w.Handler = func(c *Changes) {
		counts[fmt.Sprint(len(w.ProcessFiles()), w.Stats().Passes)]++
		for _, pair := range c.Appeared {
			pair.File.Hold()
			held = pair.File
		}
	}
	w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	w.remove(1)
	w.put(fakeProcess{pid: 2})
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 0)))
	qt.Check(t, qt.DeepEquals(maps.Clone(counts), map[string]int{"1 1": 1, "0 2": 1}))
	qt.Check(t, qt.IsNotNil(elffile.OSFile(held.ELF())), qt.Commentf("open although the pair is gone"))
	held.Release()
	qt.Check(t, qt.HasLen(w.cache.files, 0))
}

func TestWatcherTellsBeforeEachPass(t *testing.T) {
	passes := 0
	w := newWatch(t, WatcherOptions{BeforePass: func() { passes++ }})
	w.put(fakeProcess{pid: 7, size: 1})
	w.pass()
	w.pass()
	qt.Assert(t, qt.Equals(passes, 2))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 7)))
	qt.Assert(t, qt.Equals(passes, 2))
}

// What Run had still to scan when it ended is scanned in the next pass.
func TestWatcherScansWhatWasDueWhenRunEnded(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	p := fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}}
	w.put(p)
	w.pass("+otel_memory", "+1 memory.so")
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for i := range 8 { // it has ended before or after its turn to scan
		other := w.at(uint64(0x2000+0x1000*i), "other.so")
		p.maps = append(p.maps[:1], other)
		w.put(p) // stat does not tell
		w.processes[1].due = true
		_, err := w.sync(ended, w.pidsDue(), happened)
		qt.Assert(t, qt.ErrorIs(err, context.Canceled))
		if i == 0 {
			w.pass("+libstdcxx", "+1 other.so")
		} else {
			w.pass("~1 other.so")
		}
	}
}
