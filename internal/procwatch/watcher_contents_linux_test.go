// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"os"
	"testing"
	"testing/synctest"
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

// A scan may come between truncating a file and writing it, and stat does not
// tell of that.
func TestWatcherScansAgainOnceAFileHasSettled(t *testing.T) {
	half := func(t *testing.T) (w *watch, write func()) {
		w = newWatch(t, WatcherOptions{}, "otel_memory:*")
		w.put(fakeProcess{pid: 1, size: 1, maps: []fakeMap{w.at(0x1000, "memory.so")}})
		put := func(text []byte) {
			qt.Assert(t, qt.IsNil(os.WriteFile(w.libs["memory.so"], text, 0o644)))
			qt.Assert(t, qt.IsNil(os.Chtimes(w.libs["memory.so"], time.Time{}, time.Now())))
		}
		put(nil)
		return w, func() { put(memoryProbes.bytes()) }
	}
	t.Run("in a pass", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) {
			w, write := half(t)
			reads := w.countReads(1)
			w.Watcher.told = map[int]*told{1: {mapped: []mappedFile{{key(8, 1), 1}}}}
			w.pass()
			qt.Check(t, qt.HasLen(w.unwanted, 0), qt.Commentf("others that map the file are scanned"))
			write()
			w.pass()
			qt.Check(t, qt.Equals(reads(), 1))
			time.Sleep(settling)
			w.pass("+otel_memory", "+1 memory.so")
			reads()
			time.Sleep(settling)
			w.pass()
			qt.Check(t, qt.Equals(reads(), 0), qt.Commentf("the file was whole"))
		})
	})
	t.Run("if it is empty, whatever its time says", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) {
			w, write := half(t)
			qt.Assert(t, qt.IsNil(os.Chtimes(w.libs["memory.so"], time.Time{}, time.Now().Add(-time.Hour))))
			w.pass()
			write()
			time.Sleep(settling)
			w.pass("+otel_memory", "+1 memory.so")
		})
	})
	t.Run("while it runs", func(t *testing.T) {
		whileNothingGoesOn(t, func(t *testing.T) {
			w, write := half(t)
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx, time.Hour) }()
			synctest.Wait()
			write()
			time.Sleep(3 * settling)
			stop()
			qt.Check(t, qt.IsNil(<-ended))
			qt.Check(t, qt.ContentEquals(w.told, []string{"+otel_memory", "+1 memory.so"}))
		})
	})
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
