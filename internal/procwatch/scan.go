// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/gousdt/gousdt/internal/deadline"
	"github.com/gousdt/gousdt/internal/procfs"
	"github.com/gousdt/gousdt/usdt/proc"
)

// why is the reason of a scan, which decides how thorough it is.
type why int

const (
	// ifNeeded is for passes: the mappings are read if there is a sign of a
	// change.
	ifNeeded why = iota
	// happened is for reports of the kernel: the mappings are read, unless that
	// has taken too much time of late.
	happened
	// asked is for a call of Sync: the mappings are read.
	asked
)

// scan gathers findings until they are delivered.
type scan struct {
	changes Changes
	errors  []error       // all, also those reported before
	lack    error         // of descriptors or memory, for all processes
	spare   []*CachedFile // that were acquired once too often
}

// report adds an error to those that the handler gets.
func (s *scan) report(err error) { s.changes.Errors = append(s.changes.Errors, err) }

// deliver ends a scan, calls the handler and releases the files that
// disappeared. It returns all errors of the scan.
func (w *Watcher) deliver() []error {
	s := w.scan
	c := &s.changes
	w.scan = nil
	if w.Handler != nil && len(c.Appeared)+len(c.Moved)+len(c.Disappeared)+len(c.Errors) > 0 {
		w.Handler(c)
	}
	for _, pair := range c.Disappeared {
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

// sync scans some processes, and returns how long that took without the
// handler.
func (w *Watcher) sync(ctx context.Context, pids []int, reason why) (took time.Duration, err error) {
	if len(pids) == 0 {
		return 0, nil
	}
	if err := w.scanning.LockWhile(ctx); err != nil {
		w.leave(pids, reason)
		return 0, err
	}
	defer w.scanning.Unlock()
	if w.IsStopped() {
		return 0, errClosed
	}
	began := time.Now()
	w.scan = &scan{}
	complete := w.visit(ctx, pids, reason)
	took = time.Since(began)
	if err = errors.Join(w.deliver()...); err == nil && !complete {
		err = ctx.Err()
	}
	return took, err
}

// leave leaves processes to the next scan that has the time.
func (w *Watcher) leave(pids []int, reason why) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pid := range pids {
		if p := w.processes[pid]; p != nil {
			p.due = p.due || reason != ifNeeded
		}
	}
}

// visit scans processes. It reports whether it came to all of them before the
// context ended or the watcher was closed.
func (w *Watcher) visit(ctx context.Context, pids []int, reason why) (complete bool) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer context.AfterFunc(w.open, stop)()

	w.mu.Lock()
	tasks := w.tasks(pids, reason)
	w.mu.Unlock()
	left := make(map[int]bool)
	calls := deadline.Calls{
		N: len(tasks), Patience: w.patience,
		Call:       func(i int) { w.look(&tasks[i]) },
		Unanswered: &w.unanswered,
		Owner: func(i int) string {
			t := &tasks[i]
			t.owner = deadline.OwnerOf(w.FS.Root(), t.pid)
			if t.owner == "" && t.told != nil { // it has ended: see recall
				t.owner = deadline.OwnerOf(w.FS.Root(), t.told.parent)
			}
			return t.owner
		},
		Left: func(i int) { left[i] = true; w.setAside(&tasks[i]) },
		Late: func(i int) { w.late(&tasks[i]) },
		Freed: func(int) {
			w.scanning.Lock() // a scan that goes on may postpone others of the owner
			defer w.scanning.Unlock()
			w.nudge()
		},
		Keep: func(i int) bool { return tasks[i].isOwn.Load() },
	}
	begun := calls.Make(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range tasks {
		t := &tasks[i]
		if p := w.processes[t.pid]; i >= begun && p != nil {
			p.due = p.due || t.thoroughly
		} else if i < begun && !left[i] {
			w.apply(t)
		}
	}
	return begun == len(tasks)
}

// The caller holds mu.
func (w *Watcher) tasks(pids []int, reason why) []task {
	tasks, now := make([]task, len(pids)), time.Now()
	w.turns.noisy.Tidy(w.turns.noiseShare(), now) // those that still make some share it
	for i, pid := range pids {
		t := &tasks[i]
		t.pid, t.thoroughly, t.asked = pid, reason != ifNeeded, reason == asked
		t.isOwn.Store(w.Patient && t.asked)
		t.inTurns = reason != asked && w.running.Load() > 0
		t.turn = w.stats.Passes + uint64(pid)
		p := w.processes[pid]
		if told := w.told[pid]; reason == happened && told != nil && told.executed &&
			(p == nil || len(p.pairs) == 0) && w.mapsOthers(told) {
			t.told = told
		}
		if p == nil {
			continue
		}
		p.pass = w.stats.Passes
		t.known, t.pairs, t.again = p.known, p.pairs, p.scanned
		t.thoroughly = t.thoroughly || p.due || p.hasSettled(now)
		t.onlyStat = p.blocked != nil
		if wait := p.allowance.Wait(processRate, now); wait > 0 && !t.onlyStat && !t.asked {
			t.onlyStat = true
			w.postpone(p, wait)
		}
	}
	return tasks
}

func (w *Watcher) setAside(t *task) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.process(t.pid)
	if p.known == nil {
		p.known = &known{process: proc.Process{PID: t.pid, StartTime: t.startTime.Load()}}
	}
	p.blocked, p.due = t, true
	w.turns.take(t.owner, time.Now(), w.patience, false)
	err := blockedError(t.pid)
	w.scan.errors = append(w.scan.errors, err)
	w.reportOfOwner(t.owner, err)
}

// reportOfOwner reports that a process is not scanned now. While Run runs, it
// does not if another one of its owner was reported a short time ago: under
// load, each of the processes that an owner starts may be one. The caller holds
// mu.
func (w *Watcher) reportOfOwner(owner string, err *procfs.Error) {
	silence := time.Duration(0)
	if w.running.Load() > 0 {
		silence = ownerSilence
	}
	w.reportOnce(ownerError{owner, err.Err}, silence, err)
}

// reportOnce reports an error unless one with the same key has been reported
// not longer ago than some time. The caller holds mu.
func (w *Watcher) reportOnce(key any, silence time.Duration, err error) {
	now := time.Now()
	if last, ok := w.reported[key]; ok && now.Sub(last) < silence {
		return
	}
	if len(w.reported) >= maxReported {
		clear(w.reported)
	}
	w.reported[key] = now
	w.scan.report(err)
}

// ownerError is why processes of an owner are not scanned.
type ownerError struct {
	owner string
	err   error
}

// late applies the findings of an abandoned scan that has returned after all,
// unless the process has ended meanwhile.
func (w *Watcher) late(t *task) {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	w.mu.Lock()
	p := w.processes[t.pid]
	if w.IsStopped() || p == nil || p.blocked != t {
		w.mu.Unlock()
		for _, file := range t.acquired {
			file.Release()
		}
		for _, pair := range t.short {
			pair.File.Release()
		}
		return
	}
	p.blocked = nil
	w.scan = &scan{}
	w.apply(t)
	if p = w.processes[t.pid]; p != nil {
		p.due = true // there was time for changes
	}
	w.mu.Unlock()
	w.deliver()
}

// executingTime is a time after which a process has mostly mapped the program
// that it executes. One that takes longer is found by events and passes.
const executingTime = 5 * time.Millisecond

func blockedError(pid int) *procfs.Error {
	return &procfs.Error{PID: pid, Op: "scan", Err: procfs.ErrBlocked}
}

// process returns the entry of a process, which it adds if there is none. The
// caller holds mu.
func (w *Watcher) process(pid int) *watched {
	p := w.processes[pid]
	if p == nil {
		p = &watched{pass: w.stats.Passes}
		w.processes[pid] = p
	}
	return p
}

// forget forgets a process, whose pairs disappear. The caller holds mu.
func (w *Watcher) forget(pid int) {
	if p := w.processes[pid]; p != nil {
		w.setPairs(p, nil, nil)
		delete(w.processes, pid)
	}
}

// apply applies the findings of a task. The caller holds mu.
func (w *Watcher) apply(t *task) {
	w.applyRecalled(t)
	if t.outcome == gone || t.isAnother() {
		w.forget(t.pid)
	}
	switch t.outcome {
	case gone:
		return
	case lacking: // one report stands for all
		w.scan.lack = t.lack
		if p := w.processes[t.pid]; p != nil {
			p.due = true
		}
		return
	}
	p := w.process(t.pid)
	p.known = t.now
	switch t.outcome {
	case same:
		if p.blocked != nil {
			w.scan.errors = append(w.scan.errors, blockedError(t.pid))
		}
		return
	case postponed:
		w.postpone(p, t.wait)
		if t.asked {
			w.scan.errors = append(w.scan.errors,
				&procfs.Error{PID: t.pid, Op: "scan", Err: errOthersBlocked})
		}
		return
	case executing:
		time.AfterFunc(executingTime, w.nudge)
	case begun: // the rest of its files is read when the others have had their turn
		w.nudge()
	}
	p.due = t.outcome == executing || t.outcome == begun
	p.scanned = p.scanned || t.took > 0
	switch {
	case t.settles:
		p.settled = time.Now().Add(settling)
		w.wakeLater()
	case t.outcome == scanned:
		p.settled = time.Time{}
	}
	changed := w.setPairs(p, t.pairs, t.acquired)
	if t.hasNothingWanted() {
		w.learn(t.pid, t.mapped)
	}
	if t.took > 0 && t.outcome != begun {
		p.allowance.Take(processRate, time.Now(), t.took)
		if t.again && !changed {
			w.turns.take(t.now.owner, time.Now(), t.took, true)
		}
	}
	w.scan.errors = append(w.scan.errors, t.errors...)
	w.scan.changes.Errors = append(w.scan.changes.Errors, t.news...)
	for _, failed := range t.ofContents {
		w.reportOnce(failed.file, math.MaxInt64, failed.err)
	}
}

// applyRecalled reports files that have appeared and disappeared at once. The
// caller holds mu.
func (w *Watcher) applyRecalled(t *task) {
	c := &w.scan.changes
	c.Appeared = append(c.Appeared, t.short...)
	c.Disappeared = append(c.Disappeared, t.short...)
	for _, f := range t.useless {
		if len(w.unwanted) < maxUnwanted {
			w.unwanted[f] = true
		}
	}
	if len(t.short)+len(t.useless) > 0 {
		delete(w.told, t.pid) // it is reported once
	}
}

// setPairs sets the pairs of a process, and notes and reports whether any
// changed. A pair of a file that the process had before differs in where the
// file is mapped only. A new pair keeps one of the files that were acquired for
// it: the others are spare.
func (w *Watcher) setPairs(p *watched, pairs []*ProcessFile, acquired []*CachedFile) bool {
	same := len(pairs) == len(p.pairs) && (len(pairs) == 0 || &pairs[0] == &p.pairs[0])
	if same && len(acquired) == 0 {
		return false // as for most processes
	}
	c, changed := &w.scan.changes, false
	pairs = slices.Clone(pairs)
	before := make(map[*CachedFile]*ProcessFile, len(p.pairs))
	for _, old := range p.pairs {
		before[old.File] = old
	}
	now := make(map[*CachedFile]bool, len(pairs))
	for i, pair := range pairs {
		now[pair.File] = true
		switch old := before[pair.File]; {
		case old == nil:
			c.Appeared, changed = append(c.Appeared, pair), true
		case isMappedAlike(old.MappedFile, pair.MappedFile) && !pair.executed:
			pairs[i] = old
		default:
			c.Moved, changed = append(c.Moved, pair), true
		}
	}
	for _, old := range p.pairs {
		if !now[old.File] {
			c.Disappeared, changed = append(c.Disappeared, old), true
		}
	}
	for _, file := range acquired {
		if before[file] != nil || !now[file] {
			w.scan.spare = append(w.scan.spare, file)
		}
		now[file] = false // it needs no second one
	}
	p.pairs = pairs
	return changed
}

// turns are the time that owners have taken.
type turns struct {
	owners deadline.Owners
	noise  deadline.Allowance // of all scans that find nothing new
	noisy  deadline.Owners    // the same by owner
}

// wait returns the time until processes of an owner may be scanned, 0 if they
// may be now. A process that is scanned again also waits for the share of
// noise.
func (a *turns) wait(owner string, again bool, now time.Time) (wait time.Duration) {
	wait = a.owners[owner].Wait(ownerRate, now)
	if again && a.noise.Wait(noiseRate, now) > 0 {
		wait = max(wait, a.noisy[owner].Wait(a.noiseShare(), now))
	}
	return wait
}

// take notes the time of a scan for an owner, or that it was noise: it has
// found nothing new.
func (a *turns) take(owner string, now time.Time, took time.Duration, isNoise bool) {
	if !isNoise {
		a.owners.Take(owner, ownerRate, now, took)
		return
	}
	a.noise.Take(noiseRate, now, took)
	a.noisy.Take(owner, a.noiseShare(), now, took)
}

func (a *turns) noiseShare() deadline.Rate {
	return deadline.Rate{Full: noiseOfOwner, Refill: noiseRate.Refill / float64(max(1, len(a.noisy)))}
}

// nudge wakes Run, which scans the processes that are due.
func (w *Watcher) nudge() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// wakeLater wakes Run once files have settled. The caller holds mu.
func (w *Watcher) wakeLater() {
	if w.isWaking {
		return
	}
	w.isWaking = true
	time.AfterFunc(settling, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.isWaking = false
		w.nudge()
	})
}

// ScanAgain has a process scanned soon if Run runs, or else in the next pass.
// Call it if a file is not what was delivered.
func (w *Watcher) ScanAgain(pid int) {
	w.leave([]int{pid}, happened)
	w.nudge()
}

// postpone makes a process due after some time. If that is 0, it is due when
// the scan of another process of its owner has returned. The caller holds mu.
func (w *Watcher) postpone(p *watched, wait time.Duration) {
	if wait > 0 && !p.due {
		time.AfterFunc(wait, w.nudge)
	}
	p.due = true
	if p.isPutOff {
		return
	}
	p.isPutOff = true
	err := errOthersBlocked
	if wait > 0 {
		err = ErrPostponed
	}
	w.reportOfOwner(p.known.owner, &procfs.Error{PID: p.process.PID, Op: "scan", Err: err})
}

// pidsDue returns the processes that are due and may be scanned.
func (w *Watcher) pidsDue() (pids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, soonest := time.Now(), time.Duration(0)
	for pid, p := range w.processes {
		if p.settled.After(now) {
			w.wakeLater()
		}
		if !p.due && !p.hasSettled(now) || p.blocked != nil || p.allowance.Wait(processRate, now) > 0 {
			continue
		}
		wait := w.turns.wait(p.known.owner, true, now)
		if wait == 0 {
			p.due, p.settled = false, time.Time{}
			pids = append(pids, pid)
		} else if soonest == 0 || wait < soonest {
			soonest = wait
		}
	}
	if soonest > 0 {
		time.AfterFunc(soonest, w.nudge)
	}
	return pids
}
