// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/abandon"
)

// why says why a process is scanned, and so how thoroughly.
type why int

const (
	// ifNeeded is for passes: the mappings are read if there is a sign of a
	// change.
	ifNeeded why = iota
	// happened is for what the kernel reports: the mappings are read, unless
	// that has taken too much time of late.
	happened
	// asked is for a call of Sync: the mappings are read.
	asked
)

// scan gathers what is found between begin and deliver.
type scan struct {
	changes Changes
	errors  []error // all, also those reported before
	// before is how many pairs a file had at the beginning, of those that got
	// or lost one; touched has these files in order.
	before  map[*CachedFile]int
	touched []*CachedFile
	lack    error // of descriptors or memory, for all processes
	// spare are files that were acquired once more than needed.
	spare []*CachedFile
}

// begin starts a scan. The caller holds scanning.
func (w *Watcher) begin() { w.scan = &scan{before: make(map[*CachedFile]int)} }

// deliver ends a scan, tells the handler and releases what disappeared. It
// returns all errors of the scan.
func (w *Watcher) deliver() []error {
	s := w.scan
	w.scan = nil
	w.mu.Lock()
	for _, file := range s.touched {
		before, now := s.before[file], w.files[file]
		switch {
		case before == 0 && now > 0:
			s.changes.FilesAppeared = append(s.changes.FilesAppeared, file)
		case before > 0 && now == 0:
			s.changes.FilesDisappeared = append(s.changes.FilesDisappeared, file)
		}
		if now == 0 {
			delete(w.files, file)
		}
	}
	w.mu.Unlock()

	if w.handler != nil && !s.changes.isEmpty() {
		w.handler(&s.changes)
	}
	for _, pair := range s.changes.Disappeared {
		pair.File.Release()
	}
	for _, file := range s.spare {
		file.Release()
	}
	if s.lack != nil {
		return append(s.errors, s.lack)
	}
	return s.errors
}

// sync scans some processes, and returns how long that took without what the
// handler did.
func (w *Watcher) sync(
	ctx context.Context, pids []int, reason why,
) (took time.Duration, err error) {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	if w.closed {
		return 0, errClosed
	}
	began := time.Now()
	w.begin()
	w.visit(ctx, pids, reason)
	took = time.Since(began)
	return took, errors.Join(w.deliver()...)
}

// visit scans processes. It reports whether it came to all of them before the
// context or the watcher ended.
func (w *Watcher) visit(ctx context.Context, pids []int, reason why) (complete bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.open, stop)()

	w.mu.Lock()
	tasks := w.tasks(pids, reason)
	w.mu.Unlock()
	left := make(map[int]bool)
	calls := abandon.Calls{
		N: len(tasks), Patience: w.patience,
		Call: func(i int) { w.look(&tasks[i]) },
		Left: func(i int) bool { left[i] = true; w.setAside(&tasks[i]); return true },
		Late: func(i int) { w.late(&tasks[i]) },
	}
	begun := calls.Make(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range tasks[:begun] {
		if !left[i] {
			w.apply(&tasks[i])
		}
	}
	if len(left) == 0 {
		clear(tasks)
		w.unused = tasks[:0]
	}
	return begun == len(tasks)
}

// tasks says what is to be found out of processes. The caller holds mu.
func (w *Watcher) tasks(pids []int, reason why) []task {
	tasks := slices.Grow(w.unused, len(pids))[:len(pids)]
	w.unused = nil
	now := time.Now()
	w.aside.refresh(now)
	for i, pid := range pids {
		t := &tasks[i]
		t.pid, t.thoroughly, t.asked = pid, reason != ifNeeded, reason == asked
		t.inTurns = reason != asked && w.running.Load() > 0
		t.turn = w.stats.Passes + uint64(pid)
		if p := w.processes[pid]; p != nil {
			p.pass = w.stats.Passes
			t.known, t.pairs = p.known, p.pairs
			t.thoroughly = t.thoroughly || p.due
			t.again = p.scans > 0
			switch {
			case p.blocked != nil:
				t.onlyStat = true
			case reason != asked && p.allowance.wait(processAllowances, now) > 0:
				t.onlyStat = true
				w.postpone(p, p.allowance.wait(processAllowances, now))
			}
		}
	}
	return tasks
}

// apply takes what has been found out of a process. The caller holds mu.
func (w *Watcher) apply(t *task) {
	f := &t.found
	p := w.processes[t.pid]
	if f.gone || f.another {
		w.forget(t.pid)
		p = nil
	}
	if f.gone {
		return
	}
	if f.lack != nil {
		// It says nothing about this process: it is told once for all.
		w.scan.lack = f.lack
		if p != nil {
			p.due = true
		}
		return
	}
	if p == nil {
		p = &watched{pass: w.stats.Passes}
		w.processes[t.pid] = p
	}
	p.known = f.now
	switch {
	case t.onlyStat && !f.another:
		// Of a process that is set aside, only that it is still the same.
		if p.blocked != nil {
			w.scan.errors = append(w.scan.errors, blockedError(t.pid))
		}
		return
	case f.postponed:
		w.postpone(p, f.wait)
		if t.asked {
			w.scan.errors = append(w.scan.errors,
				&Error{PID: t.pid, Op: "scan", Err: errOthersBlocked})
		}
		return
	}
	p.due = false
	d := f.details
	if d == nil {
		w.setPairs(p, f.pairs, nil)
		return
	}
	c := &w.scan.changes
	changes := func() int { return len(c.Appeared) + len(c.Moved) + len(c.Disappeared) }
	before := changes()
	w.setPairs(p, f.pairs, d.acquired)
	w.charge(p, d)
	if t.again && !d.partial && changes() == before && p.known.owner != "" {
		w.aside.takeNoise(p.known.owner, time.Now(), d.took)
	}
	w.scan.errors = append(w.scan.errors, d.errors...)
	w.scan.changes.Errors = append(w.scan.changes.Errors, d.news...)
	for _, failed := range d.ofContents {
		w.report(failed)
	}
}

// report reports what is wrong with the contents of a file, once.
func (w *Watcher) report(failed fileError) {
	if w.reported[failed.file] {
		return
	}
	if len(w.reported) >= maxReportedFiles {
		clear(w.reported)
	}
	w.reported[failed.file] = true
	w.scan.changes.Errors = append(w.scan.changes.Errors, failed.err)
}

// forget ends what is known about a process. The caller holds mu.
func (w *Watcher) forget(pid int) {
	if p := w.processes[pid]; p != nil {
		w.setPairs(p, nil, nil)
		delete(w.processes, pid)
	}
}
