// SPDX-License-Identifier: BSD-2-Clause

package proc

import "time"

// An allowance bounds the share of time that something may take. It is spent
// in one go, and refills slowly. The zero value is full.
type allowance struct {
	spent time.Duration
	at    time.Time // when that much was spent
}

// allowances say how much may be spent at once, and which part of the time
// refills it.
type allowances struct {
	full time.Duration
	part int // 1 of these
}

// take spends some time that has passed.
func (a *allowance) take(limits allowances, now time.Time, took time.Duration) {
	a.spent = a.left(limits, now) + took
	a.at = now
}

// left returns what is still spent.
func (a *allowance) left(limits allowances, now time.Time) time.Duration {
	return max(0, a.spent-now.Sub(a.at)/time.Duration(limits.part))
}

// wait returns how long it takes until something may be spent again, 0 if that
// is now.
func (a *allowance) wait(limits allowances, now time.Time) time.Duration {
	return max(0, a.left(limits, now)-limits.full) * time.Duration(limits.part)
}
