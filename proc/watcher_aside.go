// SPDX-License-Identifier: BSD-2-Clause

package proc

import (
	"sync"
	"sync/atomic"
	"time"
)

// aside is whose processes are set aside, and who has taken how much of the
// time. It may be used by several goroutines at once.
type aside struct {
	// isInUse is whether somebody may have had too much, so that owners matter.
	isInUse atomic.Bool

	mu      sync.Mutex
	blocked map[string]int // by owner, scans that have not returned
	total   int            // of these
	owners  map[string]*allowance
	noise   allowance             // of scans that find nothing new
	noisy   map[string]*allowance // and of these by owner
}

// isBlocked reports whether no more processes of an owner are to be scanned
// until one returns.
func (a *aside) isBlocked(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.total >= maxBlocked || a.blocked[owner] >= maxBlockedOfOwner
}

// wait returns how long it takes until an owner may have more time, 0 if it is
// not for want of time.
func (a *aside) wait(owner string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.waitLocked(owner, now)
}

func (a *aside) waitLocked(owner string, now time.Time) time.Duration {
	if allowance := a.owners[owner]; allowance != nil {
		return allowance.wait(ownerAllowances, now)
	}
	return 0
}

// noiseWait returns how long it takes until processes of an owner may be
// scanned again that were scanned before.
func (a *aside) noiseWait(owner string, now time.Time) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	allowance := a.noisy[owner]
	if allowance == nil || a.noise.wait(noiseAllowances, now) == 0 {
		return 0
	}
	return allowance.wait(a.noiseShare(), now)
}

// noiseShare is what each of the noisy owners may take.
func (a *aside) noiseShare() allowances {
	return allowances{full: noiseOfOwner, part: noiseAllowances.part * max(1, len(a.noisy))}
}

// takeNoise has an owner spend time on a scan that found nothing new.
func (a *aside) takeNoise(owner string, now time.Time, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noise.take(noiseAllowances, now, took)
	of := a.noisy[owner]
	if of == nil {
		if a.noisy == nil || len(a.noisy) >= maxOwners {
			a.noisy = make(map[string]*allowance)
		}
		of = new(allowance)
		a.noisy[owner] = of
	}
	of.take(a.noiseShare(), now, took)
	if a.noise.wait(noiseAllowances, now) > 0 {
		a.isInUse.Store(true)
	}
}

// take has an owner spend time.
func (a *aside) take(owner string, now time.Time, took time.Duration) {
	a.mu.Lock()
	defer a.mu.Unlock()
	of := a.owners[owner]
	if of == nil {
		if len(a.owners) >= maxOwners {
			a.tidy(now)
		}
		if a.owners == nil {
			a.owners = make(map[string]*allowance)
		}
		of = new(allowance)
		a.owners[owner] = of
	}
	of.take(ownerAllowances, now, took)
	if of.wait(ownerAllowances, now) > 0 {
		a.isInUse.Store(true)
	}
}

// tidy forgets the owners that have taken nothing of late, and if that does not
// make room, all.
func (a *aside) tidy(now time.Time) {
	for owner, allowance := range a.owners {
		if allowance.left(ownerAllowances, now) == 0 {
			delete(a.owners, owner)
		}
	}
	if len(a.owners) >= maxOwners {
		clear(a.owners)
	}
}

// block notes that a scan has not returned.
func (a *aside) block(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocked == nil {
		a.blocked = make(map[string]int)
	}
	a.blocked[owner]++
	a.total++
	a.isInUse.Store(true)
}

// unblock notes that a scan has returned after all.
func (a *aside) unblock(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.blocked[owner]--; a.blocked[owner] == 0 {
		delete(a.blocked, owner)
	}
	a.total--
}

// refresh finds out whether owners still matter.
func (a *aside) refresh(now time.Time) {
	if !a.isInUse.Load() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	inUse := a.total > 0 || a.noise.wait(noiseAllowances, now) > 0
	for owner, allowance := range a.noisy {
		if allowance.left(a.noiseShare(), now) == 0 {
			delete(a.noisy, owner)
		}
	}
	for owner := range a.owners {
		inUse = inUse || a.waitLocked(owner, now) > 0
	}
	a.isInUse.Store(inUse)
}

// blockedError says that a process is set aside.
func blockedError(pid int) error { return &Error{PID: pid, Op: "scan", Err: ErrBlocked} }

// setAside notes that the scan of a process has been left behind.
func (w *Watcher) setAside(t *task) {
	owner := w.fs.owner(t.pid)
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.processes[t.pid]
	if p == nil {
		p = &watched{pass: w.stats.Passes}
		w.processes[t.pid] = p
	}
	if p.known == nil {
		id := ProcessID{PID: t.pid, StartTime: t.startTime.Load()}
		p.known = &known{process: Process{ProcessID: id, fs: w.fs}}
	}
	p.blocked, p.due = t, true
	t.owner = owner
	w.aside.block(owner)
	w.aside.take(owner, time.Now(), w.patience)
	err := blockedError(t.pid)
	w.scan.errors = append(w.scan.errors, err)
	w.scan.changes.Errors = append(w.scan.changes.Errors, err)
}

// late takes what a scan has found out that was left behind, unless it is about
// a process that has ended meanwhile.
func (w *Watcher) late(t *task) {
	w.scanning.Lock()
	defer w.scanning.Unlock()
	w.aside.unblock(t.owner)
	defer w.nudge() // at the end: it is for this process, too
	w.mu.Lock()
	p := w.processes[t.pid]
	if w.closed || p == nil || p.blocked != t {
		w.mu.Unlock()
		t.found.release()
		return
	}
	p.blocked = nil
	w.begin()
	w.apply(t)
	if p = w.processes[t.pid]; p != nil {
		p.due = true // there was time for changes
	}
	w.mu.Unlock()
	w.deliver()
}

// nudge has Run scan what is due.
func (w *Watcher) nudge() {
	select {
	case w.due <- struct{}{}:
	default:
	}
}

// charge has a process pay for a comparison of its mappings. The caller holds
// mu.
func (w *Watcher) charge(p *watched, d *details) {
	if d.took == 0 {
		return
	}
	w.compared++
	if d.read {
		w.read++
	}
	p.scans++
	if d.partial { // the rest of its files is read when the others have had their turn
		p.due = true
		w.nudge()
		return
	}
	p.allowance.take(processAllowances, time.Now(), d.took)
}

// postpone has a process scanned after some time, or when one of its owner's
// has returned that are set aside. The caller holds mu.
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
	w.scan.changes.Errors = append(w.scan.changes.Errors,
		&Error{PID: p.process.PID, Op: "scan", Err: err})
}

// pidsDue returns the processes that are due and may be scanned.
func (w *Watcher) pidsDue() (pids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, soonest := time.Now(), time.Duration(0)
	for pid, p := range w.processes {
		if !p.due || p.blocked != nil || p.allowance.wait(processAllowances, now) > 0 {
			continue
		}
		var wait time.Duration
		if p.known.owner != "" {
			wait = max(w.aside.wait(p.known.owner, now), w.aside.noiseWait(p.known.owner, now))
		}
		if wait == 0 {
			p.due = false
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
