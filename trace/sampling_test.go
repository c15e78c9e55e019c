// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

// sampledEvents fires a probe, whose argument counts from 0 to 299, and returns
// copies of its events.
func sampledEvents(t *testing.T, opts *trace.SessionOptions,
	fire func(*traced)) (events []trace.Event, losses trace.Losses, hits uint64) {
	t.Helper()
	testprog.RequireBPF(t)
	p := start(t, "target-pie")
	counted := trace.NewAggregator(trace.Aggregation{})
	opts.Aggregators = []*trace.Aggregator{counted}
	s := open(t, p, "gousdt_test:specs", opts)
	fire(p)
	qt.Assert(t, qt.IsNil(s.Detach()))
	for event, err := range s.Events(context.Background()) {
		qt.Assert(t, qt.IsNil(err))
		events = append(events, *event)
	}
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	snapshot, err := counted.Snapshot()
	qt.Assert(t, qt.IsNil(err))
	qt.Assert(t, qt.HasLen(snapshot.Rows, 1))
	return events, losses, snapshot.Rows[0].Count
}

func weights(events []trace.Event) (sum uint64) {
	for _, e := range events {
		sum += e.Weight
	}
	return sum
}

func TestSampleEvery(t *testing.T) {
	const every, fired = 10, 200
	events, losses, hits := sampledEvents(t, &trace.SessionOptions{SampleEvery: every},
		func(p *traced) { p.Fire("specs", fired) })
	qt.Check(t, qt.Equals(hits, 300*fired), qt.Commentf("aggregations are of all hits"))
	qt.Check(t, qt.Equals(uint64(len(events))+losses.NotSampled, hits))
	qt.Check(t, qt.Equals(losses.Events, 0))
	most := 2 * every * runtime.NumCPU() // that wait for the next event
	missing := int(hits - weights(events))
	qt.Check(t, qt.IsTrue(missing >= 0 && missing < most), qt.Commentf("%d", missing))
	// The standard deviation is 0.6 of the square root.
	qt.Check(t, qt.IsTrue(len(events) > 5500 && len(events) < 6500), qt.Commentf("%d", len(events)))
	// Hits that alternate both have their part.
	odd := 0
	for _, e := range events {
		odd += int(e.Args[0].Uint() % 2)
	}
	share := float64(odd) / float64(len(events))
	qt.Check(t, qt.IsTrue(share > 0.45 && share < 0.55), qt.Commentf("%v", share))
}

func TestSampleRate(t *testing.T) {
	const rate = 100
	var took time.Duration
	events, losses, hits := sampledEvents(t, &trace.SessionOptions{SampleRate: rate}, func(p *traced) {
		var all, one unix.CPUSet // each processor has its own rate
		qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(p.PID, &all)))
		for cpu := 0; one.Count() == 0; cpu++ {
			if all.IsSet(cpu) {
				one.Set(cpu)
			}
		}
		qt.Assert(t, qt.IsNil(unix.SchedSetaffinity(p.PID, &one)))
		// As many hits in each second, however fast the machine is and whatever
		// else it does.
		began := time.Now()
		for round := range 3 {
			if round > 0 {
				time.Sleep(time.Second)
			}
			p.Fire("specs", 20)
		}
		took = time.Since(began)
	})
	qt.Check(t, qt.Equals(uint64(len(events))+losses.NotSampled, hits))
	qt.Check(t, qt.IsTrue(weights(events) <= hits))
	most := rate * (int(took/time.Second) + 1) * runtime.NumCPU()
	qt.Check(t, qt.IsTrue(len(events) <= most && len(events) >= rate),
		qt.Commentf("%d of at most %d", len(events), most))
	// What was left out when a second had its events is shared out, and not the
	// weight of the first hit of the next.
	greatest := uint64(0)
	for _, e := range events {
		greatest = max(greatest, e.Weight)
	}
	qt.Check(t, qt.IsTrue(greatest < hits/10), qt.Commentf("%d of %d hits", greatest, hits))
	qt.Check(t, qt.IsTrue(weights(events) > hits/3),
		qt.Commentf("%d of %d hits", weights(events), hits))
}

func TestSampleRateTakesAllThatAreFew(t *testing.T) {
	events, losses, hits := sampledEvents(t, &trace.SessionOptions{SampleRate: 300},
		func(p *traced) { p.Fire("specs", 1) })
	qt.Check(t, qt.Equals(hits, 300))
	qt.Check(t, qt.HasLen(events, 300))
	qt.Check(t, qt.Equals(weights(events), 300))
	qt.Check(t, qt.Equals(losses.NotSampled, 0))
}

func TestEventsWithoutSamplingStandForOneHit(t *testing.T) {
	for _, every := range []int{0, 1} {
		events, losses, _ := sampledEvents(t, &trace.SessionOptions{SampleEvery: every},
			func(p *traced) { p.Fire("specs", 1) })
		qt.Check(t, qt.HasLen(events, 300))
		qt.Check(t, qt.Equals(weights(events), 300))
		qt.Check(t, qt.Equals(losses.NotSampled, 0))
	}
}
