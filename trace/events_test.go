// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestEventsAreDeliveredOrCountedAsLost(t *testing.T) {
	// The number of times that the group inlined, of five hits, is fired.
	burst := testprog.Soak(200_000, 1_000_000)
	smallBurst := min(burst, 100_000)
	slower := 1
	if testing.Short() || os.Getenv("GOUSDT_GUEST") != "" {
		slower = 100 // an emulated machine takes minutes for what is seconds here
	}
	for _, test := range []struct {
		name  string
		fires int
		opts  trace.SessionOptions
	}{
		{"small ring buffer", burst, trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 1 << 16}}},
		{"large ring buffer", smallBurst, trace.SessionOptions{
			Events: &trace.EventOptions{RingSize: 64 << 20}}},
		{"large ring buffer and delay", burst, trace.SessionOptions{Events: &trace.EventOptions{
			RingSize: 64 << 20,
			Delay:    10 * time.Millisecond,
		}}},
		{"small ring buffer and delay", smallBurst, trace.SessionOptions{
			Events: &trace.EventOptions{
				RingSize: 1 << 16,
				Delay:    time.Millisecond,
			}}},
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
				var l trace.LostError
				if errors.As(err, &l) {
					lost += uint64(l)
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
			t.Logf("%d delivered, %d lost, %v for each", delivered, losses.Events,
				took/time.Duration(hits))

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
	s := open(t, process, "gousdt_test:inlined", &trace.SessionOptions{
		Events: &trace.EventOptions{Delay: 5 * time.Millisecond}})
	for range 5 {
		process.Fire("inlined", 1)
		next(t, s, 5)
	}
	silent(t, s)
}

func TestEventsOfThreads(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "three", nil)
	want := process.Thread("three", 5)
	var got []int
	for _, event := range next(t, s, 5) {
		qt.Assert(t, qt.Equals(event.PID, process.PID))
		got = append(got, event.TID)
	}
	slices.Sort(got)
	slices.Sort(want)
	qt.Assert(t, qt.DeepEquals(got, want))
}

func TestArgumentsOnly(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "twelve", &trace.SessionOptions{
		Events: &trace.EventOptions{ArgumentsOnly: true}})
	process.Fire("twelve", 1)
	event := next(t, s, 1)[0]
	qt.Check(t, qt.IsTrue(event.Time.IsZero()))
	qt.Check(t, qt.Equals(event.Monotonic, 0))
	qt.Check(t, qt.Equals(event.PID, 0))
	qt.Check(t, qt.Equals(event.TID, 0))
	qt.Check(t, qt.Equals(event.Command, ""))
	qt.Check(t, qt.Equals(event.Probe, "gousdt_test:twelve"))
	qt.Check(t, qt.Equals(event.Args[7].Uint(), 18000000000000000001))
	silent(t, s)
}

func TestEventsEndsWithItsContext(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", nil)
	ctx, cancel := context.WithCancel(context.Background())
	process.Fire("inlined", 1)
	n := 0
	for event, err := range s.Events(ctx) {
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(n+1)))
		if n++; n == 2 {
			cancel()
		}
	}
	qt.Assert(t, qt.Equals(n, 2))
	// What has been sent waits for the next iteration, also for one that is
	// left by break.
	for event, err := range s.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(err))
		qt.Assert(t, qt.Equals(event.Args[0].Int(), 3))
		break
	}
	for range s.Events(ctx) {
		t.Fatal("an event came though the context was done")
	}
	for i, event := range next(t, s, 2) {
		qt.Assert(t, qt.Equals(event.Args[0].Int(), int64(i+4)))
	}

	// A reader that waits is woken.
	ctx, cancel = context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	for range s.Events(ctx) {
		t.Fatal("an event came that nobody sent")
	}
	qt.Assert(t, qt.ErrorIs(ctx.Err(), context.DeadlineExceeded))
	silent(t, s)
}

func TestEventsEndsWithTheSession(t *testing.T) {
	for name, end := range map[string]func(*trace.Session) error{"Close": (*trace.Session).Close,
		"Detach": (*trace.Session).Detach} {
		t.Run(name, func(t *testing.T) {
			process := start(t, "target-pie")
			s := open(t, process, "gousdt_test:inlined", nil)
			process.Fire("inlined", 1)
			ended := make(chan error)
			var events int
			for _, err := range s.Events(context.Background()) {
				qt.Assert(t, qt.IsNil(err))
				if events++; events == 5 {
					// Now the loop waits.
					go func() { ended <- end(s) }()
				}
			}
			qt.Assert(t, qt.IsNil(<-ended))
			qt.Assert(t, qt.Equals(events, 5))

			_, err := s.Attach(usdt.Target{Path: process.path}, nil,
				elfnote.Exact("gousdt_test", "three"))
			qt.Assert(t, qt.ErrorIs(err, os.ErrClosed))
			qt.Assert(t, qt.IsNil(s.Close()))
			qt.Assert(t, qt.IsNil(s.Close()))
			for range s.Events(context.Background()) {
				t.Fatal("an event came after Close")
			}
		})
	}
}

func TestEventsOnceAtATime(t *testing.T) {
	process := start(t, "target-pie")
	s := open(t, process, "gousdt_test:inlined", nil)
	process.Fire("inlined", 1)
	for range s.Events(context.Background()) {
		for event, err := range s.Events(context.Background()) {
			qt.Assert(t, qt.IsNil(event))
			qt.Assert(t, qt.ErrorMatches(err, "another iteration .* is going on"))
		}
		break
	}
	silent := newSession(t, aggregating(trace.NewAggregator(trace.Aggregation{})))
	for event, err := range silent.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(event))
		qt.Assert(t, qt.ErrorMatches(err, ".*sends no events.*"))
	}
}
