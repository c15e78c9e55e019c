// SPDX-License-Identifier: BSD-2-Clause

package profiler

import (
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

func hitAt(tid int, at time.Duration) *trace.Event {
	return &trace.Event{TID: tid, Monotonic: at}
}

// TestMatch states that a trace gets the last hit of its thread before it, and
// that all others are counted.
func TestMatch(t *testing.T) {
	m := matcher{waiting: make(map[int][]*trace.Event)}
	for _, at := range []time.Duration{10, 11, 12, 20, 30} {
		m.add(hitAt(1, at))
		m.add(hitAt(2, at+1))
	}
	m.end()
	match := func(tid int, began time.Duration) *trace.Event {
		return m.match(t.Context(), tid, began, nil)
	}
	qt.Check(t, qt.Equals(match(1, 15).Monotonic, 12)) // that of 10 and that of 11 have no trace
	qt.Check(t, qt.Equals(match(2, 21).Monotonic, 21))
	qt.Check(t, qt.IsNil(match(1, 19)))
	qt.Check(t, qt.IsNil(match(3, 100)))
	qt.Check(t, qt.Equals(match(1, 30).Monotonic, 30))
	qt.Check(t, qt.Equals(m.counted(), Stats{Matched: 3, NoHit: 2, NoStack: 2 + 3 + 1 + 1}))
}

// TestMatchForgets states that what is given up is never matched, and counted.
func TestMatchForgets(t *testing.T) {
	m := matcher{waiting: make(map[int][]*trace.Event)}
	m.add(hitAt(1, 0))
	for i := range time.Duration(maxWaiting) {
		m.add(hitAt(2, patience+1+i))
	}
	m.end()
	qt.Check(t, qt.IsNil(m.match(t.Context(), 1, 2*patience, nil)))
	qt.Check(t, qt.Equals(m.counted(), Stats{NoHit: 1, NoStack: 1 + maxWaiting}))
}

// TestPatterns states that a call of the definitions is hit at all its probes.
func TestPatterns(t *testing.T) {
	pair := "postgresql:statement"
	known := trace.BuiltinDefinitions()
	p := USDT(&Options{Session: trace.SessionOptions{Definitions: known,
		Events: &trace.EventOptions{Spans: []trace.Latency{{Pair: pair}}}}})
	patterns, err := known.Patterns(pair)
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(fmt.Sprint(p.patterns), fmt.Sprint(patterns)))
	qt.Check(t, qt.IsTrue(len(p.patterns) > 2)) // more than those of its name
}
