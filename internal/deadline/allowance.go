// SPDX-License-Identifier: BSD-2-Clause

package deadline

import "time"

// A Rate is the part of the time that something may take.
type Rate struct {
	Full time.Duration // at once
	// Refill is the share of the time that it may take in the long run, such as
	// 0.25.
	Refill float64
}

// An Allowance is the time that something has taken, at a [Rate]. The zero
// value has taken nothing. Like Owners it is not safe for concurrent use.
type Allowance struct {
	taken time.Duration
	at    time.Time // when that was so
}

// Take notes that some time was taken.
func (a *Allowance) Take(r Rate, now time.Time, took time.Duration) {
	a.taken = a.Taken(r, now) + took
	a.at = now
}

// Taken returns the time that has been taken and is not refilled yet.
func (a Allowance) Taken(r Rate, now time.Time) time.Duration {
	if a.taken == 0 {
		return 0
	}
	return max(0, a.taken-time.Duration(float64(now.Sub(a.at))*r.Refill))
}

// Wait returns how long it is until more may be taken, 0 if that is now.
func (a Allowance) Wait(r Rate, now time.Time) time.Duration {
	return time.Duration(float64(max(0, a.Taken(r, now)-r.Full)) / r.Refill)
}

// maxOwners bounds the memory of the allowances.
const maxOwners = 4096

// Owners are the allowances of owners, all at the same rate.
type Owners map[string]Allowance

// Take notes that an owner took some time.
func (o *Owners) Take(owner string, r Rate, now time.Time, took time.Duration) {
	if *o == nil {
		*o = make(Owners)
	}
	a, known := (*o)[owner]
	if !known && len(*o) >= maxOwners {
		o.Tidy(r, now)
		if len(*o) >= maxOwners {
			clear(*o)
		}
	}
	a.Take(r, now, took)
	(*o)[owner] = a
}

// Tidy forgets the owners whose allowances are full again.
func (o Owners) Tidy(r Rate, now time.Time) {
	for owner, a := range o {
		if a.Taken(r, now) == 0 {
			delete(o, owner)
		}
	}
}
