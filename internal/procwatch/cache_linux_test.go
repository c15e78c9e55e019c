// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
)

// mapped returns a file as process pid of the fixture maps it.
func mapped(t testing.TB, f *fixture, pid int, path string) *procfs.MappedFile {
	t.Helper()
	f.put(fakeProcess{pid: pid, size: 1, maps: []fakeMap{code(0x1000, path)}})
	return theFile(t, f, pid)
}

func acquire(t testing.TB, c *cache, m *procfs.MappedFile) *CachedFile {
	t.Helper()
	file, ok, err := c.acquire(&request{mounts: new(Mounts), MappedFile: m})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(ok))
	return file
}

// acquireNothing asserts that a file has no probes that are wanted.
func acquireNothing(t testing.TB, c *cache, m *procfs.MappedFile) {
	t.Helper()
	_, ok, err := c.acquire(&request{mounts: new(Mounts), MappedFile: m})
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsFalse(ok))
}

// countOpenings returns a function that returns how often files in a directory
// have been opened to be read from now on.
func countOpenings(t testing.TB, dir string) (count func() int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	qt.Assert(t, qt.IsNil(err))
	t.Cleanup(func() { unix.Close(fd) })
	_, err = unix.InotifyAddWatch(fd, dir, unix.IN_OPEN|unix.IN_CLOSE)
	qt.Assert(t, qt.IsNil(err))
	opened, buf := 0, make([]byte, 1<<20)
	return func() int {
		t.Helper()
		n, err := unix.Read(fd, buf)
		if err == unix.EAGAIN {
			return opened
		}
		qt.Assert(t, qt.IsNil(err))
		for rest := buf[:n]; len(rest) > 0; {
			switch mask := binary.NativeEndian.Uint32(rest[4:]); {
			case mask&unix.IN_ISDIR != 0:
			case mask&unix.IN_OPEN != 0:
				opened++
			case mask&unix.IN_CLOSE_WRITE != 0:
				opened-- // it was opened to be written
			}
			rest = rest[unix.SizeofInotifyEvent+binary.NativeEndian.Uint32(rest[12:]):]
		}
		return opened
	}
}

func (c *cache) inUse() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.files)
}

func TestCache(t *testing.T) {
	nothing, free := elfnote.Exact("otel_memory", "nothing"), elfnote.Exact("otel_memory", "free")

	t.Run("notices that a file is written to while it is read", func(t *testing.T) {
		f, c := newFixture(t), newCache()
		m := mapped(t, f, 1, memoryProbes.write(t, t.TempDir(), "lib.so"))
		_, err := m.Identify()
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsNil(os.Truncate(m.Path, 10)))
		asked := &request{mounts: new(Mounts), MappedFile: m}
		_, ok, err := c.acquire(asked)
		qt.Check(t, qt.IsNil(err), qt.Commentf("what is not whole is not malformed"))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.IsTrue(asked.written))
		qt.Check(t, qt.HasLen(c.unwanted.recent, 0))
	})

	t.Run("opens a file once for all processes", func(t *testing.T) {
		f, c := newFixture(t), newCache()
		lib := memoryProbes.write(t, t.TempDir(), "lib.so")
		openings := countOpenings(t, filepath.Dir(lib))
		before := openDescriptors(t)

		first := acquire(t, c, mapped(t, f, 1, lib))
		second := acquire(t, c, mapped(t, f, 2, lib))
		qt.Check(t, qt.Equals(first, second))
		checkDescriptors(t, before+1)
		qt.Check(t, qt.Equals(openings(), 1))
		qt.Check(t, qt.IsNotNil(elffile.OSFile(first.ELF())))
		qt.Check(t, qt.Equals(first.ID(), identityOf(t, lib)))

		first.Release()
		checkDescriptors(t, before+1) // the second is still there
		second.Hold()
		second.Release()
		checkDescriptors(t, before+1) // it is held
		second.Release()
		checkDescriptors(t, before)
		qt.Check(t, qt.HasLen(c.files, 0))
		second.Release() // once too often

		third := acquire(t, c, mapped(t, f, 3, lib))
		defer third.Release()
		second.Hold() // too late
		qt.Check(t, qt.IsNil(second.ELF()))
		second.Release()
		qt.Check(t, qt.Equals(acquire(t, c, mapped(t, f, 4, lib)), third))
		third.Release()
		qt.Check(t, qt.Equals(openings(), 3), qt.Commentf("once by identityOf"))
		n, err := elffile.OSFile(third.ELF()).ReadAt(make([]byte, 4), 0)
		qt.Check(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(n, 4))
	})
	t.Run("does not keep open what is not wanted", func(t *testing.T) {
		f, c := newFixture(t), newCache(nothing)
		lib := memoryProbes.write(t, t.TempDir(), "lib.so")
		openings := countOpenings(t, filepath.Dir(lib))
		before := openDescriptors(t)
		for range 3 {
			acquireNothing(t, c, mapped(t, f, 1, lib))
		}
		qt.Check(t, qt.Equals(openings(), 1))
		checkDescriptors(t, before)
	})
	t.Run("keeps the sites of a file while it is open", func(t *testing.T) {
		f, c := newFixture(t), newCache(nothing, free)
		lib := memoryProbes.write(t, t.TempDir(), "lib.so")
		file := acquire(t, c, mapped(t, f, 1, lib))
		qt.Assert(t, qt.IsNil(os.Truncate(lib, 0))) // there is nothing to be read any more
		var names []string
		for site, err := range file.Sites() {
			qt.Assert(t, qt.IsNil(err))
			names = append(names, site.Name)
		}
		qt.Check(t, qt.DeepEquals(names, []string{"alloc", "free"}))
		qt.Check(t, qt.IsTrue(c.kept > 0))
		file.Release()
		qt.Check(t, qt.Equals(c.kept, 0))
	})
	t.Run("reads sites again that there is no room for", func(t *testing.T) {
		f, c := newFixture(t), newCache()
		c.kept = maxKeptSites - 10
		file := acquire(t, c, mapped(t, f, 1, memoryProbes.write(t, t.TempDir(), "lib.so")))
		sites := 0
		for _, err := range file.Sites() {
			qt.Assert(t, qt.IsNil(err))
			sites++
		}
		qt.Check(t, qt.Equals(sites, 2))
		file.Release()
		qt.Check(t, qt.Equals(c.kept, maxKeptSites-10))
	})
	t.Run("remembers files without probes", func(t *testing.T) {
		f, c := newFixture(t), newCache()
		dir := t.TempDir()
		script := filepath.Join(dir, "jit-cache")
		qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("code, but not ELF"), 0o755)))
		empty := filepath.Join(dir, "empty")
		qt.Assert(t, qt.IsNil(os.WriteFile(empty, nil, 0o755)))
		openings := countOpenings(t, dir)
		before := openDescriptors(t)
		for i, path := range []string{noProbes.write(t, dir, "lib.so"), script, empty} {
			for range 3 {
				acquireNothing(t, c, mapped(t, f, 1, path))
			}
			qt.Check(t, qt.Equals(openings(), i+1))
		}
		checkDescriptors(t, before)
		qt.Check(t, qt.HasLen(c.files, 0))
	})
	t.Run("finds the good probes of a file with a malformed one", func(t *testing.T) {
		f := newFixture(t)
		good, bad := newCache(elfnote.Exact("p", "good")), newCache(elfnote.Exact("p", "bad"))
		lib := testELF{probes: [][2]string{{"p", "bad"}, {"p", "good"}}, broken: true}.write(t,
			t.TempDir(), "lib.so")
		acquire(t, good, mapped(t, f, 1, lib)).Release()
		acquireNothing(t, bad, mapped(t, f, 1, lib))
	})
}

func TestCacheIsBounded(t *testing.T) {
	f, c := newFixture(t), newCache()
	c.unwanted.limit = 2
	dir := t.TempDir()
	openings := countOpenings(t, dir)
	opened := func(i int) bool {
		before := openings()
		path := filepath.Join(dir, fmt.Sprint(i))
		if _, err := os.Stat(path); err != nil {
			noProbes.write(t, path)
		}
		acquireNothing(t, c, mapped(t, f, 1, path))
		qt.Assert(t, qt.IsTrue(len(c.unwanted.recent)+len(c.unwanted.former) <= 4))
		return openings() > before
	}
	for i := range 10 {
		qt.Check(t, qt.IsTrue(opened(i)))
		qt.Check(t, qt.IsFalse(opened(0)), qt.Commentf("asked for all the time, at %d", i))
		qt.Check(t, qt.IsFalse(opened(i)), qt.Commentf("the last one"))
	}
	qt.Check(t, qt.IsTrue(opened(1)))
}

func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestCacheKeepsLittleOfAFile(t *testing.T) {
	const notes, files = 200_000, 3 // of 20 bytes
	for name, file := range map[string]testELF{
		"none usable": {probes: [][2]string{{"p", "n"}}, broken: true, empty: notes},
		"one usable":  {probes: [][2]string{{"p", "n"}}, empty: notes},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture(t)
			caches := []*cache{newCache(elfnote.Exact("p", "n")), newCache(elfnote.Exact("p", "other"))}
			lib := filepath.Join(t.TempDir(), "lib.so")
			before := heap()
			for i := range files {
				file.tag = byte(i)
				file.write(t, lib)
				for _, c := range caches {
					m := &request{mounts: new(Mounts), MappedFile: mapped(t, f, 1, lib)}
					if file, ok, _ := c.acquire(m); ok {
						file.Release()
					}
				}
				// The next one has another ID.
				qt.Assert(t, qt.IsNil(os.Rename(lib, lib+fmt.Sprint(i))))
			}
			kept := int64(heap()) - int64(before)
			qt.Check(t, qt.IsTrue(kept < 1<<20), qt.Commentf("%d kB", kept>>10))
			runtime.KeepAlive(caches)
		})
	}
}
