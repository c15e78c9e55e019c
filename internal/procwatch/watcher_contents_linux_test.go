// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestWatcherTakesATouchedFileForTheSame(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	for pid := 1; pid <= 3; pid++ {
		w.put(fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{w.at(0x1000, "memory.so"), w.at(0x2000, "plain.so")}})
	}
	w.pass("+otel_memory", "+1 memory.so", "+2 memory.so", "+3 memory.so")
	for i := range 7 {
		for _, lib := range w.libs {
			qt.Assert(t, qt.IsNil(os.Chtimes(lib, time.Time{}, time.Unix(int64(1e9+i), 0))))
		}
		w.told = nil
		for pid := 1; pid <= 3; pid++ {
			qt.Assert(t, qt.IsNil(w.Sync(t.Context(), pid)))
		}
		qt.Check(t, qt.HasLen(w.told, 0))
	}
	file := w.ProcessFiles()[0].File
	qt.Check(t, qt.Equals(file.references, 3), qt.Commentf("one for each process"))
	qt.Check(t, qt.HasLen(w.cache.files, 1))
}

func TestWatcherFindsWhatWasWrittenIntoAFile(t *testing.T) {
	w := newWatch(t, WatcherOptions{}, "*:*")
	write := func(e testELF) {
		t.Helper()
		file, err := os.OpenFile(w.libs["memory.so"], os.O_WRONLY, 0)
		qt.Assert(t, qt.IsNil(err))
		_, err = file.WriteAt(e.bytes(), 0)
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(file.Close()))
		// Time stamps can be as coarse as a clock tick.
		qt.Assert(t,
			qt.IsNil(os.Chtimes(w.libs["memory.so"], time.Time{}, time.Now().Add(time.Hour))))
	}
	for pid := 1; pid <= 2; pid++ {
		w.put(fakeProcess{pid: pid, startTime: uint64(pid), size: 1,
			maps: []fakeMap{w.at(0x1000, "memory.so")}})
	}
	w.pass("+otel_memory", "+1 memory.so", "+2 memory.so")
	id := w.ProcessFiles()[0].File.ID()
	write(otherProbes)
	w.told = nil
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	qt.Check(t, qt.DeepEquals(w.told, []string{"+libstdcxx", "+1 memory.so", "-1 memory.so"}))
	qt.Check(t, qt.Equals(w.ProcessFiles()[0].File.ID(), id), qt.Commentf("the file is the same"))
	w.told = nil
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 2)))
	qt.Check(t, qt.HasLen(w.told, 3), qt.Commentf("%q", w.told)) // the old one is closed
	write(noProbes)
	w.told = nil
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 1)))
	qt.Assert(t, qt.IsNil(w.Sync(t.Context(), 2)))
	qt.Check(t, qt.HasLen(w.ProcessFiles(), 0))
	qt.Check(t, qt.HasLen(w.cache.files, 0))
}
