// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/internal/testneeds"
)

// watch is a watcher of a fixture that records what the handler gets, one
// string each: "+7 lib.so", "-7 lib.so", "~7 lib.so" for pairs, "+lib.so" and
// "-lib.so" for files, "!" and the text of errors.
type watch struct {
	*fixture
	*Watcher
	libs map[string]string // by name
	told []string
}

// whileNothingGoesOn runs a test in a bubble of synctest, in which time passes
// when nothing can go on.
func whileNothingGoesOn(t *testing.T, test func(t *testing.T)) {
	testneeds.Patience(0) // is made for a clock that goes on
	synctest.Test(t, test)
}

// scansAnswer is a patience by which no scan is set aside because the machine
// is busy.
const scansAnswer = time.Minute

func newWatch(t *testing.T, options WatcherOptions, wanted ...string) *watch {
	f := newFixture(t)
	dir := t.TempDir()
	w := &watch{fixture: f, libs: map[string]string{
		"memory.so": memoryProbes.write(t, dir, "memory.so"),
		"other.so":  otherProbes.write(t, dir, "other.so"),
		"plain.so":  noProbes.write(t, dir, "plain.so"),
	}}
	options.FS = f.fs()
	describer := make(describer)
	options.Handler = func(c *Changes) { w.told = append(w.told, describer.describe(c)...) }
	w.Watcher = NewWatcher(&options, patterns(t, wanted...)...)
	w.patience = scansAnswer
	before := openDescriptors(t)
	t.Cleanup(func() {
		qt.Check(t, qt.IsNil(w.Close()))
		w.awaitReturns(t)
		checkDescriptors(t, before)
		qt.Check(t, qt.HasLen(w.ProcessFiles(), 0))
	})
	return w
}

// awaitReturns waits until every abandoned scan has returned, and has closed
// the files that it opened. When Run ends, the scan that is going on may be
// abandoned.
func (w *Watcher) awaitReturns(t testing.TB) {
	t.Helper()
	blocked := func() int {
		calls, _ := w.unanswered.Count()
		return calls
	}
	for start := time.Now(); blocked() > 0; runtime.Gosched() {
		if time.Since(start) > testneeds.Patience(10*time.Second) {
			t.Errorf("%d abandoned scans have not returned", blocked())
			return
		}
	}
	w.scanning.Lock() // which the last of them holds until it has given back all
	defer w.scanning.Unlock()
	testneeds.Await(t, 10*time.Second, "files are closed", func() bool {
		w.cache.closing.mu.Lock()
		defer w.cache.closing.mu.Unlock()
		return len(w.cache.closing.devices) == 0
	})
}

// countReads returns a function that returns how often the mappings of some
// processes have been read since it was called last.
func (w *watch) countReads(pids ...int) func() int {
	w.t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	qt.Assert(w.t, qt.IsNil(err))
	w.t.Cleanup(func() { unix.Close(fd) })
	for _, pid := range pids {
		// Equal events are merged, unless there is another one between them.
		_, err := unix.InotifyAddWatch(fd, procfs.Path(w.root, pid, "maps"),
			unix.IN_OPEN|unix.IN_CLOSE)
		qt.Assert(w.t, qt.IsNil(err))
	}
	buf := make([]byte, 64<<10)
	return func() (count int) {
		w.t.Helper()
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return 0
		}
		qt.Assert(w.t, qt.IsNil(err))
		for ; n > 0; n -= unix.SizeofInotifyEvent { // the names are empty
			if binary.NativeEndian.Uint32(buf[n-unix.SizeofInotifyEvent+4:])&unix.IN_OPEN != 0 {
				count++
			}
		}
		return count
	}
}

// await scans all processes until a condition holds.
func (w *watch) await(is func() bool) {
	w.t.Helper()
	testneeds.Await(w.t, 10*time.Second, "scans find it", func() bool {
		qt.Assert(w.t, qt.IsNil(w.Sync(context.Background(), 0)))
		return is()
	})
}

// describer describes changes, and which files appear and disappear with them.
// It has the number of their pairs.
type describer map[*CachedFile]int

func (d describer) describe(c *Changes) []string {
	var lines []string
	file := func(sign string, f *CachedFile) {
		lines = append(lines, sign+filepath.Base(nameOf(f)))
	}
	pair := func(sign string, p *ProcessFile) {
		lines = append(lines, fmt.Sprintf("%s%d %s", sign, p.Process.PID, filepath.Base(p.Path)))
	}
	before := maps.Clone(d)
	for _, p := range c.Appeared {
		d[p.File]++
	}
	for _, p := range c.Disappeared {
		d[p.File]--
	}
	for f, n := range d {
		if n > 0 && before[f] == 0 {
			file("+", f)
		}
	}
	for _, p := range c.Appeared {
		pair("+", p)
	}
	for _, p := range c.Moved {
		pair("~", p)
	}
	for _, p := range c.Disappeared {
		pair("-", p)
	}
	for f, n := range d {
		if n == 0 {
			delete(d, f)
			if before[f] > 0 {
				file("-", f)
			}
		}
	}
	for _, err := range c.Errors {
		lines = append(lines, "! "+err.Error())
	}
	return lines
}

// nameOf finds the name of an open file: that of its first probe's provider.
func nameOf(f *CachedFile) string {
	if f.ELF() == nil {
		return "closed"
	}
	for site := range f.ELF().Sites() {
		return site.Provider
	}
	return "without probes"
}

type pairKey struct {
	process ID
	file    *CachedFile
}

func (p *ProcessFile) key() pairKey {
	return pairKey{ID{PID: p.Process.PID, StartTime: p.Process.StartTime}, p.File}
}

// at returns a mapping of one of the libraries.
func (w *watch) at(start uint64, lib string) fakeMap { return code(start, w.libs[lib]) }

// pass scans all processes and checks what the handler got.
func (w *watch) pass(want ...string) {
	w.t.Helper()
	w.told = nil
	qt.Assert(w.t, qt.IsNil(w.Sync(context.Background(), 0)))
	qt.Assert(w.t, qt.ContentEquals(w.told, want))
}
