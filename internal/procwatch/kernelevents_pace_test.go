// SPDX-License-Identifier: BSD-2-Clause

package procwatch

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
)

func TestPace(t *testing.T) {
	start := time.Unix(1000, 0)
	const gap = time.Millisecond // between a scan and the next record
	// each returns the delays of some gatherings, one soon after the other,
	// each of which leads to a scan that takes some time.
	each := func(p *pace, started bool, took time.Duration, n int) (delays []time.Duration) {
		now := start
		for range n {
			delay := p.next(now)
			delays = append(delays, delay)
			now = now.Add(delay)
			p.gathered, p.started = now, started
			now = now.Add(took)
			p.scans.Take(eventRate, now, took)
			now = now.Add(gap)
		}
		return delays
	}
	t.Run("programs that start are scanned soon, the first at once", func(t *testing.T) {
		delays := each(&pace{}, true, 100*time.Microsecond, 50)
		qt.Check(t, qt.Equals(delays[0], firstEventDelay))
		for _, delay := range delays {
			qt.Check(t, qt.IsTrue(delay <= startsDelay), qt.Commentf("%v", delay))
		}
	})
	t.Run("one that maps files all the time more and more seldom", func(t *testing.T) {
		delays := each(&pace{}, false, 0, 10)
		qt.Check(t, qt.Equals(delays[0], firstEventDelay))
		for i, delay := range delays[1:] {
			qt.Check(t, qt.Equals(delay, min(2*delays[i], eventDelay)))
		}
		qt.Check(t, qt.Equals(delays[9], eventDelay))
	})
	t.Run("programs that start all the time share scans", func(t *testing.T) {
		delays := each(&pace{}, true, time.Millisecond, 100)
		qt.Check(t, qt.Equals(delays[0], firstEventDelay))
		qt.Check(t, qt.Equals(delays[99], eventDelay))
	})
	t.Run("at once again after a quiet time", func(t *testing.T) {
		p := &pace{}
		each(p, true, time.Millisecond, 100)
		each(p, false, 0, 10)
		qt.Check(t, qt.Equals(p.next(start.Add(time.Hour)), firstEventDelay))
	})
}
