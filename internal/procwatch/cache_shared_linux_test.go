// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/elffile"
	"github.com/gousdt/gousdt/internal/procfs"
)

func TestCacheHasAFileReadByOneCallerWhileOthersWait(t *testing.T) {
	f := newFixture(t)
	const callers = 8
	c := newCache()
	lib := memoryProbes.write(t, t.TempDir(), "lib.so")
	openings := countOpenings(t, filepath.Dir(lib))
	begin := make(chan struct{})
	var files [callers]*CachedFile
	var group sync.WaitGroup
	for i := range callers {
		m := mapped(t, f, i+1, lib)
		group.Go(func() {
			<-begin
			file, _, err := c.acquire(&request{mounts: new(Mounts), MappedFile: m})
			qt.Check(t, qt.IsNil(err))
			files[i] = file
		})
	}
	close(begin)
	group.Wait()
	for _, file := range files {
		qt.Check(t, qt.Equals(file, files[0]))
		file.Release()
	}
	qt.Check(t, qt.Equals(openings(), 1))
	qt.Check(t, qt.HasLen(c.files, 0))
}

func TestCacheUsedByManyAtOnce(t *testing.T) {
	f, c := newFixture(t), newCache()
	c.unwanted.limit = 2
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
		var files []*procfs.MappedFile
		for i, path := range paths {
			files = append(files, mapped(t, f, 1+10*worker+i, path))
		}
		group.Go(func() {
			for n := range 200 {
				i := (n*7 + worker) % len(files)
				file, ok, err := c.acquire(&request{mounts: new(Mounts), MappedFile: files[i]})
				if err != nil || ok != (i%2 == 0) {
					t.Errorf("acquire file %d: %v, %v", i, ok, err)
					return
				}
				if !ok {
					continue
				}
				if _, err := elffile.OSFile(file.ELF()).ReadAt(make([]byte, 16), 0); err != nil {
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
