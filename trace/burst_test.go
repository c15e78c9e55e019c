// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"os"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/trace"
)

// burst is how often the group inlined, of five hits, is fired: five million
// hits. Most variants do with less.
const (
	burst      = 1_000_000
	smallBurst = burst / 10
)

func TestEventsAreDeliveredOrCountedAsLost(t *testing.T) {
	slower := 1
	if testing.Short() || os.Getenv("GOUSDT_GUEST") != "" {
		slower = 100 // an emulated machine takes minutes for what is seconds here
	}
	for _, test := range []struct {
		name  string
		fires int
		opts  trace.SessionOptions
	}{
		{"small ring buffer", burst, trace.SessionOptions{RingSize: 1 << 16}},
		{"large ring buffer", smallBurst, trace.SessionOptions{RingSize: 64 << 20}},
		{"large ring buffer and delay", burst, trace.SessionOptions{RingSize: 64 << 20, Delay: 10 * time.Millisecond}},
		{"small ring buffer and delay", smallBurst, trace.SessionOptions{RingSize: 1 << 16, Delay: time.Millisecond}},
	} {
		t.Run(test.name, func(t *testing.T) {
			fires := test.fires / slower
			hits := uint64(5 * fires)
			process := start(t, "target-pie")
			opts := test.opts
			sums := trace.NewAggregator(trace.Aggregation{Value: "arg0", Sum: true})
			opts.Aggregators = []*trace.Aggregator{sums}
			s := open(t, process, "gousdt_test:inlined", &opts)

			began := time.Now()
			fired := make(chan error, 1)
			go func() {
				_, err := process.Command("fire inlined " + decimal(fires))
				s.Detach()
				fired <- err
			}()
			var delivered, sum, lost uint64
			gap := false
			for event, err := range s.Events(context.Background()) {
				var l *trace.LostError
				if errors.As(err, &l) {
					lost += l.Events
					continue
				}
				qt.Assert(t, qt.IsNil(err))
				// The values come in order: 1 2 3 4 5 1 2 3 ...
				gap = gap || event.Args[0].Uint() != delivered%5+1
				delivered++
				sum += event.Args[0].Uint()
			}
			qt.Assert(t, qt.IsNil(<-fired))
			took := time.Since(began)
			losses, err := s.Losses()
			qt.Assert(t, qt.IsNil(err))
			t.Logf("%d delivered, %d lost, %v for each", delivered, losses.Events, took/time.Duration(hits))

			qt.Assert(t, qt.Equals(delivered+losses.Events, hits))
			qt.Assert(t, qt.Equals(lost, losses.Events))
			if losses.Events == 0 {
				qt.Assert(t, qt.Equals(sum, 3*hits))
				qt.Assert(t, qt.IsFalse(gap))
			}
			row := snapshot(t, sums).Rows[0]
			qt.Assert(t, qt.Equals(row.Count, hits))
			qt.Assert(t, qt.Equals(row.Sum.Uint(), 3*hits))
		})
	}
}

func TestEventsWithDelay(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{Delay: 5 * time.Millisecond})
	for range 5 {
		process.Fire("inlined", 1)
		next(t, s, 5)
	}
	silent(t, s)
}
