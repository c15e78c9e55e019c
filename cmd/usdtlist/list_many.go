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
	"github.com/gousdt/gousdt/internal/archive"
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
				n, err = l.listPath(r.path, true)
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

// scan looks whether a file has something to list, and reports whether there is
// something to say. It is called by several goroutines.
func (l *lister) scan(path string) (scanned, bool) {
	file, err := openScanned(path)
	if err != nil {
		return scanned{path: path, err: fmt.Errorf("%s: %w", path, cause(err))}, true
	}
	defer file.Close()
	var begin [8]byte
	_, err = file.ReadAt(begin[:], 0)
	var has bool
	switch {
	case err != nil:
		return scanned{}, false // also a directory, by now, or an error that concerns no ELF file
	case archive.IsMagic(begin[:]):
		has, err = l.archiveHasSomething(file)
	case string(begin[:len(elf.ELFMAG)]) == elf.ELFMAG:
		has, err = l.readerHasSomething(file)
	}
	if err != nil {
		return scanned{path: path, err: fmt.Errorf("%s: %w", path, err)}, true
	}
	return scanned{path: path}, has
}

// archiveHasSomething is hasSomething for a static library.
func (l *lister) archiveHasSomething(r io.ReaderAt) (bool, error) {
	for member, err := range archive.Members(r) {
		switch {
		case err != nil:
			return false, err
		case member.Contents == nil:
			return false, nil // the files of a thin one are found themselves
		case isELF(member.Contents):
			if has, err := l.readerHasSomething(member.Contents); has || err != nil {
				return has, err
			}
		}
	}
	return false, nil
}

func (l *lister) readerHasSomething(r io.ReaderAt) (bool, error) {
	file, err := elfnote.NewFile(r)
	if err != nil {
		return false, err
	}
	defer file.Close()
	return l.hasSomething(file)
}

// hasSomething reports whether a file has a probe to list, or a note that
// cannot be read.
func (l *lister) hasSomething(file *elfnote.File) (bool, error) {
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
