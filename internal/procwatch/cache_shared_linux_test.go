// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-quicktest/qt"
)

func TestCacheHasAFileReadByOneCallerWhileOthersWait(t *testing.T) {
	f := newFixture(t)
	const callers = 8
	var openings atomic.Int32
	opening, proceed := make(chan struct{}, callers), make(chan struct{})
	c := NewCache()
	c.open = func(m *MappedFile) (io.ReaderAt, error) {
		openings.Add(1)
		opening <- struct{}{}
		<-proceed
		return openMapped(m)
	}
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
	qt.Check(t, qt.HasLen(c.files, 0))
}

func TestCacheUsedByManyAtOnce(t *testing.T) {
	f, c := newFixture(t), NewCache()
	c.answers.limit = 2
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
				if _, err := file.reader.ReadAt(make([]byte, 16), 0); err != nil {
					t.Error(err)
				}
				file.Release()
			}
		})
	}
	group.Wait()
	checkDescriptors(t, before)
	qt.Check(t, qt.HasLen(c.files, 0))
}
