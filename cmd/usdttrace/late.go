// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/procwatch"
	"github.com/gousdt/gousdt/usdt"
)

// latecomers are files that a command's processes have mapped before they were
// attached. What the command and its descendants will map is only known in
// part: the first process that maps another file is late, and its hits until
// then are not seen. The kernel's records say when a file was mapped.
type latecomers struct {
	tracer  *tracer
	records *procwatch.Records
	done    sync.WaitGroup // of the reading of records
	syncing sync.WaitGroup // of what these ask for

	mu       sync.Mutex
	attached map[procwatch.FileID]bool
	known    map[string]bool      // paths of files that are attached or have no matching probe
	waiting  map[string]*lateFile // paths of files that have one, until they are attached
	late     []*lateFile          // those that were attached late
	lost     bool                 // records are missing
}

// lateFile is a file that was mapped before it was attached.
type lateFile struct {
	path      string
	pid       int // the first process
	processes int // how many of them
	by        time.Duration
	attached  bool  // else the processes had ended before it could be
	err       error // why it is not known whether the file has matching probes

	since, until map[int]time.Time // when processes have mapped it, and ended
}

// maxLateProcesses bounds the processes of a file that are measured: the first
// are the ones that are late by most.
const maxLateProcesses = 1000

// watchLatecomers begins to record what a command maps, which has not begun.
func (t *tracer) watchLatecomers() error {
	records, err := procwatch.RecordFamily(t.command.tid)
	if err != nil {
		return err
	}
	l := &latecomers{tracer: t, records: records, attached: make(map[procwatch.FileID]bool),
		known: make(map[string]bool), waiting: make(map[string]*lateFile)}
	t.latecomers = l
	context.AfterFunc(t.ctx, records.Stop)
	l.done.Go(func() {
		for records.Wait() {
			for pid := range l.look() {
				// Errors are reported by its handler. It is not waited for.
				l.syncing.Go(func() { _ = t.follower.Sync(pid) })
			}
		}
	})
	return nil
}

// look reads the records that there are, and returns the processes that have
// mapped what is to be attached.
func (l *latecomers) look() map[int]bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	late := make(map[int]bool)
	for _, record := range l.records.Drain() {
		if l.add(&record) {
			late[record.PID] = true
		}
	}
	return late
}

// add notes what a record tells, and reports whether a process has mapped what
// is to be attached.
func (l *latecomers) add(record *procwatch.Record) (isLate bool) {
	at := time.Unix(0, record.Time)
	switch record.Kind {
	case procwatch.FileMapped:
		return l.mapped(record.PID, record.Path, at)
	case procwatch.ProcessForked:
		// A child has what its parent has mapped.
		for _, file := range l.waiting {
			if _, late := file.since[record.Parent]; late && file.until[record.Parent].IsZero() {
				file.add(record.PID, at)
			}
		}
	case procwatch.ProcessEnded, procwatch.ProcessExecuted:
		for _, file := range l.waiting {
			since, late := file.since[record.PID]
			// Processors have buffers of their own: an exec may be read late.
			if late && file.until[record.PID].IsZero() && at.After(since) {
				file.until[record.PID] = at
			}
		}
	case procwatch.RecordsLost:
		l.lost = true
	}
	return false
}

func (f *lateFile) add(pid int, at time.Time) {
	f.processes++
	if len(f.since) < maxLateProcesses {
		f.since[pid] = at
		delete(f.until, pid)
	}
}

// mapped notes that a process has mapped a file, and reports whether that is to
// be attached.
func (l *latecomers) mapped(pid int, path string, at time.Time) (waits bool) {
	if len(l.tracer.options.files) > 0 || l.known[path] || !strings.HasPrefix(path, "/") {
		return false
	}
	file := l.waiting[path]
	if file == nil {
		isLate, err := l.isLate(path)
		if !isLate || len(l.waiting) == maxWatched {
			if len(l.known) == maxWatched {
				clear(l.known) // they are looked at again
			}
			l.known[path] = true
			return false
		}
		file = &lateFile{path: path, pid: pid, err: err, since: make(map[int]time.Time),
			until: make(map[int]time.Time)}
		l.waiting[path] = file
	}
	if _, before := file.since[pid]; !before || !file.until[pid].IsZero() {
		file.add(pid, at)
	}
	return true
}

// isLate reports whether a file has matching probes, or may have, and is not
// attached.
func (l *latecomers) isLate(path string) (bool, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return false, nil // a device, which is not to be opened
	}
	opened, err := os.Open(path)
	if err != nil {
		return true, err
	}
	defer opened.Close()
	if id, err := procwatch.IdentifyFile(opened); err == nil && l.attached[id] {
		return false, nil
	}
	sel, err := usdt.Select(usdt.Target{Path: path}, l.tracer.options.patterns...)
	if err != nil {
		return false, nil // nothing is attached, and so nothing is missed
	}
	return true, sel.Close()
}

// attachedNow notes that a file is attached.
func (l *latecomers) attachedNow(path string) {
	now := time.Now()
	l.look() // what was mapped before
	l.mu.Lock()
	defer l.mu.Unlock()
	l.known[path] = true
	if opened, err := os.Open(path); err == nil {
		if id, err := procwatch.IdentifyFile(opened); err == nil {
			l.attached[id] = true
		}
		opened.Close()
	}
	file := l.waiting[path]
	delete(l.waiting, path)
	if file != nil {
		file.attached = true
		l.end(file, now)
	}
}

func (l *latecomers) end(file *lateFile, now time.Time) {
	for pid, since := range file.since {
		until := file.until[pid]
		if until.IsZero() || until.After(now) {
			until = now
		}
		file.by = max(file.by, until.Sub(since))
	}
	file.since, file.until = nil, nil
	if file.by > 0 {
		l.late = append(l.late, file)
	}
}

// finish returns the files that were late, the latest first.
func (l *latecomers) finish() (late []*lateFile, complete bool) {
	l.done.Wait()
	l.syncing.Wait()
	l.look()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.records.Close()
	for path, file := range l.waiting {
		l.end(file, time.Now())
		delete(l.waiting, path)
	}
	slices.SortFunc(l.late, func(a, b *lateFile) int {
		return cmp.Or(cmp.Compare(b.by, a.by), strings.Compare(a.path, b.path))
	})
	return l.late, !l.lost
}

// String says what was missed, and what to do about it.
func (f *lateFile) String() string {
	by := fmt.Sprintf("process %d", f.pid)
	switch others := f.processes - 1; {
	case others == 1:
		by += " (and 1 other)"
	case others > 1:
		by += fmt.Sprintf(" (and %d others)", others)
	}
	switch took := formatDuration(float64(f.by)); {
	case f.err != nil:
		return fmt.Sprintf("perhaps not seen: hits in %s, which %s ran for %s: "+
			"it could not be read any more", f.path, by, took)
	case f.attached:
		return fmt.Sprintf("not seen: hits in %s for up to %s, because it was attached that long "+
			"after %s had mapped it (name the FILE to miss none)", f.path, took, by)
	default:
		return fmt.Sprintf("not seen: hits in %s, which %s had mapped for up to %s, and ended "+
			"before it was attached (name the FILE to miss none)", f.path, by, took)
	}
}

// maxLate is the number of files that are named whose hits were not all seen.
const maxLate = 8

func lateText(files []*lateFile) (text string) {
	for _, file := range files[:min(len(files), maxLate)] {
		text += file.String() + "\n"
	}
	if more := len(files) - maxLate; more > 0 {
		text += fmt.Sprintf("not seen: hits in %s more\n", plural(more, "file"))
	}
	return text
}
