// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"sync"
	"time"

	"github.com/gousdt/gousdt/internal/fairness"
	"github.com/gousdt/gousdt/internal/procfs"
)

// turns counts the scans that do not return, and the time that owners have
// taken. It may be used by several goroutines at once.
type turns struct {
	mu      sync.Mutex
	blocked fairness.Blocked // scans that have not returned
	owners  fairness.Owners
	noise   fairness.Allowance // of all scans that find nothing new
	noisy   fairness.Owners    // the same by owner
}

// block adds to the number of scans for an owner that have not returned.
func (a *turns) block(owner string, more int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.blocked.Add(owner, more)
}

// wait returns the time until processes of an owner may be scanned, 0 if they
// may be now, and reports whether one of its scans has to return first. A
// process that is scanned again also waits for the share of noise.
func (a *turns) wait(owner string, again bool, now time.Time) (wait time.Duration, isBlocked bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	wait = a.owners.Wait(owner, ownerRate, now)
	if again && a.noise.Wait(noiseRate, now) > 0 {
		wait = max(wait, a.noisy.Wait(owner, a.noiseShare(), now))
	}
	return wait, a.blocked.IsFull(owner, maxBlocked)
}

// take notes the time of a scan for an owner, or that it was noise: it has
// found nothing new.
func (a *turns) take(owner string, now time.Time, took time.Duration, isNoise bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !isNoise {
		a.owners.Take(owner, ownerRate, now, took)
		return
	}
	a.noise.Take(noiseRate, now, took)
	a.noisy.Take(owner, a.noiseShare(), now, took)
}

func (a *turns) noiseShare() fairness.Rate {
	return fairness.Rate{Full: noiseOfOwner, Refill: noiseRate.Refill / float64(max(1, len(a.noisy)))}
}

// forgetQuiet leaves the noise to the owners that still make some.
func (a *turns) forgetQuiet(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.noisy.Tidy(a.noiseShare(), now)
}

// nudge wakes Run, which scans the processes that are due.
func (w *Watcher) nudge() {
	select {
	case w.due <- struct{}{}:
	default:
	}
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
		err = procfs.ErrPostponed
	}
	w.scan.report(&procfs.Error{PID: p.process.PID, Op: "scan", Err: err})
}

// pidsDue returns the processes that are due and may be scanned.
func (w *Watcher) pidsDue() (pids []int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, soonest := time.Now(), time.Duration(0)
	for pid, p := range w.processes {
		if !p.due || p.blocked != nil || p.allowance.Wait(processRate, now) > 0 {
			continue
		}
		wait, _ := w.turns.wait(p.known.owner, true, now)
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
