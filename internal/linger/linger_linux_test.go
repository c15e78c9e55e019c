// SPDX-License-Identifier: BSD-2-Clause

package linger_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/linger"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/proc"
)

// channelLock is a mutex for which the clock of a synctest bubble goes on while
// somebody waits.
type channelLock chan struct{}

func (c channelLock) Lock()   { c <- struct{}{} }
func (c channelLock) Unlock() { <-c }

// lingering is files that linger, and what has been told of them.
type lingering struct {
	*linger.Files
	t     *testing.T
	lock  channelLock
	path  string
	cache *proc.Cache
	ended []*proc.CachedFile
}

// run runs a test in a bubble, with the lock held.
func run(t *testing.T, test func(*lingering)) {
	path := filepath.Join(t.TempDir(), "lib.so")
	testprog.WriteNotes(t, path, []testprog.Note{{Provider: "p", Name: "n"}})
	synctest.Test(t, func(t *testing.T) {
		l := &lingering{t: t, lock: make(channelLock, 1), path: path}
		l.cache = l.newCache()
		l.Files = linger.New(l.lock, l.end)
		l.lock.Lock()
		defer l.lock.Unlock()
		test(l)
		qt.Check(t, qt.Equals(l.Len(), 0))
		qt.Check(t, qt.Equals(l.held(), 0))
	})
}

// newCache makes a cache that takes every file for the one with probes.
func (l *lingering) newCache() *proc.Cache {
	return proc.NewCache(&proc.CacheOptions{Open: func(*proc.MappedFile) (io.ReaderAt, error) { return os.Open(l.path) }})
}

// acquire holds the file that the test runs.
func (l *lingering) acquire(cache *proc.Cache) *proc.CachedFile {
	l.t.Helper()
	mapped, err := proc.NewFS("").Files(os.Getpid())
	qt.Assert(l.t, qt.IsNil(err))
	file, ok, err := cache.Acquire(mapped[0])
	qt.Assert(l.t, qt.IsNil(err))
	qt.Assert(l.t, qt.IsTrue(ok))
	return file
}

func (l *lingering) held() int { return l.cache.Stats().InUse }

func (l *lingering) end(file *proc.CachedFile) {
	qt.Check(l.t, qt.HasLen(l.lock, 1))
	qt.Check(l.t, qt.IsNotNil(file.ELF()), qt.Commentf("it is still held"))
	l.ended = append(l.ended, file)
}

// pass lets time pass without the lock.
func (l *lingering) pass(duration time.Duration) {
	l.lock.Unlock()
	time.Sleep(duration)
	synctest.Wait()
	l.lock.Lock()
}

func TestFilesLingerUntilTheirTimeIsOver(t *testing.T) {
	run(t, func(l *lingering) {
		file := l.acquire(l.cache)
		l.Leave(file, time.Second)
		file.Release()
		l.pass(time.Second - 1)
		qt.Check(t, qt.HasLen(l.ended, 0))
		qt.Check(t, qt.Equals(l.held(), 1))
		qt.Check(t, qt.Equals(l.Len(), 1))

		l.pass(1)
		qt.Assert(t, qt.HasLen(l.ended, 1))
		qt.Check(t, qt.Equals(l.ended[0], file))
	})
}

func TestFilesThatAProcessHasAgainLingerNoMore(t *testing.T) {
	run(t, func(l *lingering) {
		file := l.acquire(l.cache)
		qt.Check(t, qt.IsFalse(l.Back(file)), qt.Commentf("it has not gone"))
		for range 2 {
			l.Leave(file, time.Second)
			file.Release()
			qt.Assert(t, qt.Equals(l.acquire(l.cache), file))
			qt.Check(t, qt.IsTrue(l.Back(file)))
			qt.Check(t, qt.IsFalse(l.Back(file)))
			l.pass(time.Hour)
		}
		qt.Check(t, qt.HasLen(l.ended, 0))
		qt.Check(t, qt.Equals(l.held(), 1))
		file.Release()
	})
}

// The time is over while somebody has the lock, who then finds the file in a
// process.
func TestTimersThatComeTooLateEndNothing(t *testing.T) {
	run(t, func(l *lingering) {
		file := l.acquire(l.cache)
		l.Leave(file, time.Second)
		time.Sleep(time.Minute) // with the lock
		qt.Check(t, qt.IsTrue(l.Back(file)))
		l.Leave(file, time.Hour)
		file.Release()
		l.pass(time.Minute)
		qt.Check(t, qt.HasLen(l.ended, 0))
		qt.Check(t, qt.Equals(l.held(), 1))
		l.pass(time.Hour)
		qt.Check(t, qt.HasLen(l.ended, 1))
	})
}

func TestAllLingeringCanBeEnded(t *testing.T) {
	run(t, func(l *lingering) {
		another := l.newCache()
		one, two := l.acquire(l.cache), l.acquire(another)
		for _, file := range []*proc.CachedFile{one, two} {
			l.Leave(file, time.Second)
			file.Release()
		}
		l.EndAll(l.end)
		qt.Check(t, qt.HasLen(l.ended, 2))
		qt.Check(t, qt.IsTrue(slices.Contains(l.ended, one) && slices.Contains(l.ended, two)))
		qt.Check(t, qt.Equals(another.Stats().InUse, 0))
		l.pass(time.Hour)
		qt.Check(t, qt.HasLen(l.ended, 2))
	})
}
