// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
)

// mapped returns a file as process pid of the fixture maps it.
func mapped(t testing.TB, f *fixture, pid int, path string) *MappedFile {
	t.Helper()
	f.put(fakeProcess{pid: pid, size: 1, maps: []fakeMap{code(0x1000, path)}})
	return theFile(t, f, pid)
}

func acquire(t testing.TB, c *Cache, m *MappedFile) *CachedFile {
	t.Helper()
	file, ok, err := c.Acquire(m)
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(ok))
	return file
}

func TestCacheReadsAFileOnceForAllProcesses(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	before := openDescriptors(t)

	first := acquire(t, c, mapped(t, f, 1, lib))
	second := acquire(t, c, mapped(t, f, 2, lib))
	qt.Check(t, qt.Equals(first, second))
	qt.Check(t, qt.Equals(openDescriptors(t), before+1))
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{InUse: 1, Opened: 1, Parsed: 1}))
	qt.Check(t, qt.HasLen(first.Listing().Probes, 2))
	qt.Check(t, qt.IsNotNil(first.ELF().OSFile()))
	qt.Check(t, qt.Equals(first.ID(), identityOf(t, lib)))

	first.Release()
	qt.Check(t, qt.Equals(openDescriptors(t), before+1), qt.Commentf("the second is still there"))
	second.Hold()
	second.Release()
	qt.Check(t, qt.Equals(openDescriptors(t), before+1), qt.Commentf("it is held"))
	listing := second.Listing()
	second.Release()
	qt.Check(t, qt.Equals(openDescriptors(t), before))
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: 1, Opened: 1, Parsed: 1}))
	second.Release() // once too often
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: 1, Opened: 1, Parsed: 1}))
	qt.Check(t, qt.HasLen(listing.Probes, 2), qt.Commentf("it stays valid"))

	third := acquire(t, c, mapped(t, f, 3, lib))
	defer third.Release()
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{InUse: 1, Opened: 2, Parsed: 1}), qt.Commentf("it is opened, but not read again"))
	site, err := third.ELF().SiteBytes(third.Listing().Probes[0].Sites[0], make([]byte, 4))
	qt.Check(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(site, 4))
}

func TestCacheDoesNotOpenWhatIsNotWanted(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	before := openDescriptors(t)
	for range 3 {
		_, ok, err := c.Acquire(mapped(t, f, 1, lib), elfnote.MustParsePattern("nothing"))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsFalse(ok))
	}
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: 1, Opened: 1, Parsed: 1}))
	file, ok, err := c.Acquire(mapped(t, f, 1, lib), elfnote.MustParsePattern("free"))
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.IsTrue(ok))
	qt.Check(t, qt.HasLen(file.Listing().Probes, 2), qt.Commentf("all that there are"))
	file.Release()
	qt.Check(t, qt.Equals(openDescriptors(t), before))
}

func TestCacheRemembersFilesWithoutProbes(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	dir := t.TempDir()
	script := filepath.Join(dir, "jit-cache")
	qt.Assert(t, qt.IsNil(os.WriteFile(script, []byte("code, but not ELF"), 0o755)))
	empty := filepath.Join(dir, "empty")
	qt.Assert(t, qt.IsNil(os.WriteFile(empty, nil, 0o755)))
	before := openDescriptors(t)
	for i, path := range []string{noProbes.write(t, dir, "lib.so"), script, empty} {
		for range 3 {
			_, ok, err := c.Acquire(mapped(t, f, 1, path))
			qt.Assert(t, qt.IsNil(err))
			qt.Assert(t, qt.IsFalse(ok))
		}
		qt.Check(t, qt.Equals(c.Stats(), CacheStats{WithoutProbes: i + 1, Opened: uint64(i + 1), Parsed: uint64(i + 1)}))
	}
	qt.Check(t, qt.Equals(openDescriptors(t), before))
}

func TestCacheForgetsFilesWithoutProbesThatAreNotAskedFor(t *testing.T) {
	f, c := newFixture(t), NewCache(&CacheOptions{WithoutProbes: 2})
	dir := t.TempDir()
	opened := func(i int) bool {
		before := c.Stats().Opened
		path := filepath.Join(dir, fmt.Sprint(i))
		if _, err := os.Stat(path); err != nil {
			noProbes.write(t, path)
		}
		_, _, err := c.Acquire(mapped(t, f, 1, path))
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.IsTrue(c.Stats().WithoutProbes <= 4))
		return c.Stats().Opened > before
	}
	for i := range 10 {
		qt.Check(t, qt.IsTrue(opened(i)))
		qt.Check(t, qt.IsFalse(opened(0)), qt.Commentf("asked for all the time, at %d", i))
		qt.Check(t, qt.IsFalse(opened(i)), qt.Commentf("the last one"))
	}
	qt.Check(t, qt.IsTrue(opened(1)))
}

func TestCacheReportsWhatCannotBeRead(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	dir := t.TempDir()
	truncated := filepath.Join(dir, "truncated.so")
	qt.Assert(t, qt.IsNil(os.WriteFile(truncated, memoryProbes.bytes()[:0x1010], 0o755)))
	broken := testELF{probes: [][2]string{{"p", "n"}}, broken: true}.write(t, dir, "broken.so")
	for range 2 {
		_, ok, err := c.Acquire(mapped(t, f, 1, truncated))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.ErrorIs(err, elfnote.ErrTruncated))
		qt.Check(t, qt.ErrorMatches(err, `process 1: read probes ".*/truncated.so": .*`))

		_, ok, err = c.Acquire(mapped(t, f, 2, broken))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.ErrorIs(err, elfnote.ErrLocation))
		qt.Check(t, qt.ErrorMatches(err, `process 2: read probes ".*/broken.so": no usable probe, 1 broken: note 0.*`))
	}
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{WithoutProbes: 2, Opened: 2, Parsed: 2}), qt.Commentf("both remembered"))
}

// heap returns how much memory is in use.
func heap() uint64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}

func TestCacheKeepsLittleOfFilesWithManyBrokenNotes(t *testing.T) {
	const notes, files = 200_000, 8 // of 20 bytes
	for _, test := range []struct {
		name string
		elf  testELF
	}{
		{"none usable", testELF{probes: [][2]string{{"p", "n"}}, broken: true, empty: notes}},
		{"one usable", testELF{probes: [][2]string{{"p", "n"}}, empty: notes}},
	} {
		t.Run(test.name, func(t *testing.T) {
			f, c := newFixture(t), NewCache(&CacheOptions{IdleSites: 100_000})
			lib := filepath.Join(t.TempDir(), "lib.so")
			before := heap()
			for i := range files {
				test.elf.tag = byte(i)
				test.elf.write(t, lib)
				file, ok, _ := c.Acquire(mapped(t, f, 1, lib))
				if ok {
					qt.Check(t, qt.Equals(file.Listing().MalformedCount, notes))
					qt.Check(t, qt.HasLen(file.Listing().Malformed, elfnote.MaxMalformed))
					file.Release()
				}
				qt.Assert(t, qt.IsNil(os.Rename(lib, lib+fmt.Sprint(i)))) // the next one has another identity
			}
			qt.Check(t, qt.Equals(c.Stats().Parsed, files))
			// The notes of two files count as 80,000 sites.
			qt.Check(t, qt.IsTrue(c.Stats().Idle <= 2))
			kept := int64(heap()) - int64(before)
			qt.Check(t, qt.IsTrue(kept < 3*notes*20), qt.Commentf("%d kB", kept>>10))
			runtime.KeepAlive(c)
		})
	}
}

func TestCacheRemembersRefusedFiles(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	before := openDescriptors(t)
	file := acquire(t, c, mapped(t, f, 1, lib))
	qt.Check(t, qt.IsNil(file.Refused()))
	file.Refuse(elfnote.ErrTooLarge)
	qt.Check(t, qt.Equals(file.Refused(), error(elfnote.ErrTooLarge)))
	for range 2 {
		_, ok, err := c.Acquire(mapped(t, f, 2, lib))
		qt.Check(t, qt.IsFalse(ok))
		qt.Check(t, qt.ErrorIs(err, elfnote.ErrTooLarge))
	}
	file.Release()
	qt.Check(t, qt.Equals(openDescriptors(t), before))
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{WithoutProbes: 1, Opened: 1, Parsed: 1}))
}

func TestCacheDoesNotForgetForAFileThatIsTooLarge(t *testing.T) {
	f, c := newFixture(t), NewCache(&CacheOptions{IdleSites: 10})
	dir := t.TempDir()
	small := memoryProbes.write(t, dir, "small.so")
	large := testELF{probes: [][2]string{{"p", "n"}}, empty: 1000}.write(t, dir, "large.so")
	acquire(t, c, mapped(t, f, 1, small)).Release()
	acquire(t, c, mapped(t, f, 1, large)).Release()
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: 1, Opened: 2, Parsed: 2}))
	acquire(t, c, mapped(t, f, 1, small)).Release()
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: 1, Opened: 3, Parsed: 2}))
}

func TestCacheListsTheGoodProbesOfAFileWithABrokenOne(t *testing.T) {
	f, c := newFixture(t), NewCache(nil)
	lib := testELF{probes: [][2]string{{"p", "bad"}, {"p", "good"}}, broken: true}.write(t, t.TempDir(), "lib.so")
	file := acquire(t, c, mapped(t, f, 1, lib))
	defer file.Release()
	qt.Check(t, qt.HasLen(file.Listing().Malformed, 1))
	qt.Check(t, qt.Equals(file.Listing().Probes[0].Name, "good"))
}

func TestCacheDoesNotRememberThatOpeningFailed(t *testing.T) {
	f := newFixture(t)
	fail := error(syscall.EMFILE)
	c := NewCache(&CacheOptions{Open: func(m *MappedFile) (io.ReaderAt, error) {
		if fail != nil {
			return nil, fail
		}
		return openMapped(m)
	}})
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	_, ok, err := c.Acquire(mapped(t, f, 1, lib))
	qt.Check(t, qt.ErrorIs(err, fail))
	qt.Check(t, qt.IsFalse(ok))
	qt.Check(t, qt.Equals(c.Stats(), CacheStats{}))
	qt.Check(t, qt.HasLen(c.entries, 0))

	fail = nil
	acquire(t, c, mapped(t, f, 1, lib)).Release()

	fail = syscall.ENFILE // at the second opening, of a file whose probes are known
	_, _, err = c.Acquire(mapped(t, f, 1, lib))
	qt.Check(t, qt.ErrorIs(err, fail))
	qt.Check(t, qt.Equals(c.Stats().Idle, 1))
}

// failingReader is a file on a disk that is going, or on a host that does not
// answer any more.
type failingReader struct {
	io.ReaderAt
	err    error
	good   int // how many reads succeed first
	closed *int
}

func (r *failingReader) ReadAt(p []byte, offset int64) (int, error) {
	if r.good == 0 {
		return 0, r.err
	}
	r.good--
	return r.ReaderAt.ReadAt(p, offset)
}

func (r *failingReader) Close() error { *r.closed++; return nil }

// Whichever read it is that fails, the next caller finds the probes.
func TestCacheDoesNotRememberThatReadingFailed(t *testing.T) {
	for _, failure := range []error{syscall.EIO, errors.New("remote: deadline exceeded"), io.ErrUnexpectedEOF} {
		f := newFixture(t)
		opened, closed := 0, 0
		c := NewCache(&CacheOptions{Open: func(*MappedFile) (io.ReaderAt, error) {
			opened++
			return &failingReader{bytes.NewReader(memoryProbes.bytes()), failure, opened - 1, &closed}, nil
		}})
		lib := memoryProbes.write(t, t.TempDir(), "lib.so")
		for {
			file, ok, err := c.Acquire(mapped(t, f, 1, lib))
			if err == nil {
				qt.Check(t, qt.IsTrue(ok))
				file.Release()
				break
			}
			qt.Assert(t, qt.ErrorIs(err, failure))
			qt.Assert(t, qt.ErrorMatches(err, `process 1: read probes ".*/lib.so": .*`))
			qt.Assert(t, qt.Equals(closed, opened))
			qt.Assert(t, qt.Equals(c.Stats(), CacheStats{Opened: uint64(opened), Parsed: uint64(opened)}))
		}
		qt.Check(t, qt.IsTrue(opened > 2), qt.Commentf("opened %d times", opened))
	}
}

func TestCacheTakesBytesFromTheCaller(t *testing.T) {
	f := newFixture(t)
	asked := ""
	c := NewCache(&CacheOptions{Open: func(m *MappedFile) (io.ReaderAt, error) {
		asked = m.Path
		return bytes.NewReader(otherProbes.bytes()), nil
	}})
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	before := openDescriptors(t)
	file := acquire(t, c, mapped(t, f, 1, lib))
	defer file.Release()
	qt.Check(t, qt.Equals(asked, lib))
	qt.Check(t, qt.Equals(file.Listing().Probes[0].Name, "throw"))
	qt.Check(t, qt.IsNil(file.ELF().OSFile()))
	qt.Check(t, qt.Equals(openDescriptors(t), before))
}

func TestCacheIsBounded(t *testing.T) {
	tests := []struct {
		name    string
		options CacheOptions
		idle    int
	}{
		{"by files", CacheOptions{IdleFiles: 3}, 3},
		{"by sites", CacheOptions{IdleSites: 4}, 2},
		{"to nothing", CacheOptions{IdleFiles: -1}, 0},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			f, c := newFixture(t), NewCache(&test.options)
			dir := t.TempDir()
			var files []*CachedFile
			path := func(i int) string { return filepath.Join(dir, fmt.Sprint(i)) }
			for i := range 6 {
				memoryProbes.write(t, path(i))
				files = append(files, acquire(t, c, mapped(t, f, i+1, path(i))))
			}
			qt.Check(t, qt.Equals(c.Stats().InUse, 6), qt.Commentf("files in use are not bounded"))
			for _, file := range files {
				file.Release()
			}
			qt.Check(t, qt.Equals(c.Stats(), CacheStats{Idle: test.idle, Opened: 6, Parsed: 6}))
			qt.Check(t, qt.HasLen(c.entries, test.idle))
			qt.Check(t, qt.Equals(c.idleSize, 2*test.idle))

			acquire(t, c, mapped(t, f, 1, path(5))).Release()
			parsed := uint64(6)
			if test.idle == 0 {
				parsed = 7
			}
			qt.Check(t, qt.Equals(c.Stats().Parsed, parsed), qt.Commentf("the last one was kept"))
			acquire(t, c, mapped(t, f, 1, path(0))).Release()
			qt.Check(t, qt.Equals(c.Stats().Parsed, parsed+1), qt.Commentf("the first one was not"))
		})
	}
}

func TestCacheHasAFileReadByOneCallerWhileOthersWait(t *testing.T) {
	f := newFixture(t)
	const callers = 8
	var openings atomic.Int32
	opening, proceed := make(chan struct{}, callers), make(chan struct{})
	c := NewCache(&CacheOptions{Open: func(m *MappedFile) (io.ReaderAt, error) {
		openings.Add(1)
		opening <- struct{}{}
		<-proceed
		return openMapped(m)
	}})
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	var files [callers]*CachedFile
	var group sync.WaitGroup
	start := func(i int) {
		m := mapped(t, f, i+1, lib)
		group.Go(func() {
			file, _, err := c.Acquire(m)
			qt.Check(t, qt.IsNil(err))
			files[i] = file
		})
	}
	start(0)
	<-opening
	for i := range callers - 1 {
		start(i + 1)
	}
	close(proceed)
	group.Wait()
	for _, file := range files {
		qt.Check(t, qt.Equals(file, files[0]))
		file.Release()
	}
	qt.Check(t, qt.Equals(openings.Load(), 1))
	qt.Check(t, qt.Equals(c.Stats().InUse, 0))
}

func TestCacheUsedByManyAtOnce(t *testing.T) {
	f, c := newFixture(t), NewCache(&CacheOptions{IdleFiles: 2, WithoutProbes: 1})
	dir := t.TempDir()
	var paths []string
	for i := range 6 {
		kind := memoryProbes
		if i%2 == 1 {
			kind = noProbes
		}
		paths = append(paths, kind.write(t, dir, fmt.Sprint(i)))
	}
	before := openDescriptors(t)
	var group sync.WaitGroup
	for worker := range 4 {
		var files []*MappedFile
		for i, path := range paths {
			files = append(files, mapped(t, f, 1+10*worker+i, path))
		}
		group.Go(func() {
			for n := range 200 {
				i := (n*7 + worker) % len(files)
				file, ok, err := c.Acquire(files[i])
				if err != nil || ok != (i%2 == 0) {
					t.Errorf("acquire file %d: %v, %v", i, ok, err)
					return
				}
				if !ok {
					continue
				}
				if _, err := file.ELF().ReadAt(make([]byte, 16), 0); err != nil {
					t.Error(err)
				}
				file.Release()
			}
		})
	}
	group.Wait()
	qt.Check(t, qt.Equals(openDescriptors(t), before))
	qt.Check(t, qt.Equals(c.Stats().InUse, 0))
	qt.Check(t, qt.IsTrue(c.Stats().Idle <= 2))
}
