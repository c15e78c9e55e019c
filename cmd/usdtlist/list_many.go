// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/messages"
)

// batchesAhead is for each processor how many batches may wait to be printed.
// It bounds the memory: a file early in the order may take longest.
const batchesAhead = 8

// listMany lists the files with probes among many: those in directories, and
// those of lists. All processors look which files have some. Those are then
// listed one after the other, in order.
func (l *lister) listMany() (found int, failed bool) {
	processors := runtime.GOMAXPROCS(0)
	inOrder := make(chan *batch, processors*batchesAhead)
	work := make(chan *batch, processors*batchesAhead)
	var count atomic.Int64
	var workers sync.WaitGroup
	for range processors {
		workers.Go(func() {
			for b := range work {
				for _, path := range b.paths {
					if r, ok := l.scan(path); ok {
						b.results = append(b.results, r)
					}
				}
				count.Add(int64(len(b.paths)))
				close(b.done)
			}
		})
	}
	workers.Go(func() {
		w := &walker{options: l.options, give: func(b *batch) {
			inOrder <- b
			work <- b
		}}
		w.walk()
		close(inOrder)
		close(work)
	})

	done := l.Progress(func() string { return fmt.Sprintf("%d files scanned", count.Load()) })
	defer done()
	for b := range inOrder {
		<-b.done
		for _, r := range b.results {
			n, err := 0, r.err
			if err == nil {
				n, err = l.listFound(r.path)
			}
			found += n
			if err == nil {
				continue
			}
			failed = failed || r.expected
			l.printer.failed(failure{name: r.path, err: err, leftOut: !r.expected})
			if r.expected {
				l.Warn("%v", err)
			} else {
				l.WarnOf("left out: "+messages.Cause(err), "left out: %v", err)
			}
		}
		if len(b.results) > 0 {
			l.Hide()
			_ = l.out.Flush() // the last one has the same error
		}
	}
	workers.Wait()
	return found, failed
}

// listFound lists a file that was found to have probes.
func (l *lister) listFound(path string) (int, error) {
	file, err := open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	return l.listOpened(&listing{path: path, heading: true, elf: file})
}

// scan looks whether a file has something to list, and reports whether there is
// something to say. It is called by several goroutines.
func (l *lister) scan(path string) (scanned, bool) {
	file, err := openScanned(path)
	if err != nil {
		return scanned{path: path, err: fmt.Errorf("%s: %w", path, cause(err))}, true
	}
	defer file.Close()
	var magic [len(elf.ELFMAG)]byte
	if _, err := file.ReadAt(magic[:], 0); err != nil || string(magic[:]) != elf.ELFMAG {
		return scanned{}, false // also a directory, by now, or an error that concerns no ELF file
	}
	has, err := l.hasSomething(file)
	if err != nil {
		return scanned{path: path, err: fmt.Errorf("%s: %w", path, err)}, true
	}
	return scanned{path: path}, has
}

// hasSomething reports whether a file has a probe to list, or a note that
// cannot be read.
func (l *lister) hasSomething(r io.ReaderAt) (bool, error) {
	file, err := elfnote.NewFile(r)
	if err != nil {
		return false, err
	}
	defer file.Close()
	for site, err := range file.Sites() {
		var note *elfnote.NoteError
		if err != nil && !errors.As(err, &note) {
			return false, err
		}
		if err != nil || elfnote.MatchAny(l.options.patterns, site.Provider, site.Name) {
			return true, nil
		}
	}
	return false, nil
}
