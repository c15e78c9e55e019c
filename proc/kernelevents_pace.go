// SPDX-License-Identifier: BSD-2-Clause

package proc

import "time"

// pace says how long records of the kernel are gathered before the processes
// that they name are scanned. What happens, happens in bursts: a program starts
// by mapping a dozen files. Without a delay it would be scanned for each.
//
// The delay is the least there is after a quiet time and where programs start
// and end, so that a new one is scanned at once. It is longer while programs
// that run already map files all the time, and where the scans have taken more
// of the time than they are allowed.
type pace struct {
	delay    time.Duration // the last one
	gathered time.Time
	started  bool // a process has started or ended since the one before
	scans    allowance
}

// next returns the delay for records that have begun to come.
func (p *pace) next(now time.Time) time.Duration {
	if p.started || now.Sub(p.gathered) > eventDelay {
		p.delay = firstEventDelay
	} else {
		p.delay = min(2*p.delay, eventDelay)
	}
	return max(p.delay, min(p.scans.wait(eventAllowances, now), eventDelay))
}

// after notes that records have been gathered, and whether processes have
// started or ended among them.
func (p *pace) after(now time.Time, started bool) { p.gathered, p.started = now, started }

// spend notes how long a scan took of what was gathered.
func (p *pace) spend(now time.Time, took time.Duration) { p.scans.take(eventAllowances, now, took) }
