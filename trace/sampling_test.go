// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"golang.org/x/sys/unix"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

func sampled(by trace.Sampling) *trace.EventOptions { return &trace.EventOptions{Sampling: by} }

// sampledEvents fires a probe and returns copies of its events. It checks that
// all hits are accounted for. "specs" has 300 sites, whose arguments count from
// 0 to 299, and "inlined" 5, from 1 to 5.
func sampledEvents(t *testing.T, probe string, opts *trace.EventOptions,
	fire func(*traced)) (events []trace.Event, losses trace.Losses, hits uint64) {
	t.Helper()
	testprog.RequireBPF(t)
	p := start(t, "target-pie")
	counted := trace.NewAggregator(trace.Aggregation{})
	s := open(t, p, "gousdt_test:"+probe,
		&trace.SessionOptions{Aggregators: []*trace.Aggregator{counted}, Events: opts})
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
	hits = snapshot.Rows[0].Count
	qt.Check(t, qt.Equals(uint64(len(events))+losses.NotSampled, hits))
	qt.Check(t, qt.Equals(weights(events)+losses.Unrepresented, hits))
	return events, losses, hits
}

func weights(events []trace.Event) (sum uint64) {
	for _, e := range events {
		sum += e.Weight
	}
	return sum
}

func TestSampleEvery(t *testing.T) {
	const every, fired = 10, 200
	events, losses, hits := sampledEvents(t, "specs", sampled(trace.Sampling{Every: every}),
		func(p *traced) { p.Fire("specs", fired) })
	qt.Check(t, qt.Equals(hits, 300*fired), qt.Commentf("aggregations are of all hits"))
	qt.Check(t, qt.Equals(losses.Events, 0))
	// A tenth of the hits of each site, on average, wait for the next event.
	qt.Check(t, qt.IsTrue(losses.Unrepresented > 0 && losses.Unrepresented < 300*2*every),
		qt.Commentf("%d", losses.Unrepresented))
	// The standard deviation is 0.6 times the square root of the number.
	qt.Check(t, qt.IsTrue(len(events) > 5500 && len(events) < 6500), qt.Commentf("%d", len(events)))
	// Hits that alternate both have their part.
	odd := 0
	for _, e := range events {
		odd += int(e.Args[0].Uint() % 2)
	}
	share := float64(odd) / float64(len(events))
	qt.Check(t, qt.IsTrue(share > 0.45 && share < 0.55), qt.Commentf("%v", share))
}

// Events come all the time, however short the run is, and their weights stand
// for all hits.
func TestSampleRate(t *testing.T) {
	const rate = 100
	for _, test := range []struct{ least, pause time.Duration }{
		{least: time.Second / 2},
		{least: testprog.Soak(time.Second, 2*time.Second)},
		{least: testprog.Soak(time.Second, 2*time.Second), pause: 100 * time.Millisecond}, // many at once
	} {
		t.Run(fmt.Sprint(test.least, " ", test.pause), func(t *testing.T) {
			var took, idle time.Duration // idle: without hits for longer than what may come at once
			fire := func(p *traced) {
				onOneProcessor(t, p)
				began := time.Now()
				// A busy machine takes long for each: few would say nothing.
				for n := 0; took < test.least || n < 10; n++ {
					p.Fire("inlined", 600)
					time.Sleep(test.pause)
					idle += max(0, time.Since(began)-took-time.Second/8)
					took = time.Since(began)
				}
			}
			events, _, hits := sampledEvents(t, "inlined",
				sampled(trace.Sampling{PerSecond: rate}), fire)
			most := rate/8 + 1 + int(rate*took/time.Second)
			qt.Check(t, qt.IsTrue(len(events) <= most), qt.Commentf("%d of %d", len(events), most))
			if least := int(rate * (took - idle) / time.Second / 2); test.pause == 0 {
				qt.Check(t, qt.IsTrue(len(events) >= least),
					qt.Commentf("%d of %d", len(events), least))
			}
			// But for the hits after the last event of each site.
			share := float64(weights(events)) / float64(hits)
			qt.Check(t, qt.IsTrue(share <= 1 && share > 0.75), qt.Commentf("%v", share))
			early, odd := 0, uint64(0)
			for _, e := range events {
				if e.Monotonic-events[0].Monotonic < took/2 {
					early++
				}
				odd += e.Args[0].Uint() % 2 * e.Weight
				qt.Check(t, qt.IsTrue(e.Weight < hits/4), qt.Commentf("%d of %d", e.Weight, hits))
			}
			qt.Check(t, qt.IsTrue(10*early < 7*len(events)), qt.Commentf("%d of %d", early, len(events)))
			// Hits that alternate both have their part.
			share = float64(odd) / float64(weights(events))
			qt.Check(t, qt.IsTrue(share > 0.25 && share < 0.75), qt.Commentf("%v", share))
			t.Logf("%d events of %d hits in %v: %.3f", len(events), hits, took,
				float64(weights(events))/float64(hits))
		})
	}
}

// A hit of a quiet process that comes after a burst of another one does not
// stand for the burst.
func TestWeightsAreOfOneProcessAndSite(t *testing.T) {
	for _, sampling := range []trace.Sampling{{PerSecond: 200}, {Every: 50}} {
		t.Run(fmt.Sprint(sampling), func(t *testing.T) {
			const rounds, burst = 60, 2000
			var busy, quiet *traced
			events, _, hits := sampledEvents(t, "inlined", sampled(sampling),
				func(p *traced) {
					busy, quiet = p, p.again(t)
					onOneProcessor(t, busy, quiet)
					for range rounds {
						busy.Fire("inlined", burst)
						quiet.Fire("inlined", 10)
					}
				})
			qt.Check(t, qt.Equals(hits, 5*rounds*(burst+10)))
			type key struct {
				pid  int
				site *trace.Site
			}
			stand := make(map[key]uint64)
			for _, e := range events {
				stand[key{e.PID, e.Site}] += e.Weight
			}
			for key, weight := range stand {
				most := uint64(rounds * burst)
				if key.pid == quiet.PID {
					most = rounds * 10
				}
				qt.Check(t, qt.IsTrue(weight <= most), qt.Commentf("%d stand for %d of process %d",
					most, weight, key.pid))
			}
		})
	}
}

// onOneProcessor has processes run on the first processor that they can have:
// each has its own sampling.
func onOneProcessor(t *testing.T, all ...*traced) {
	t.Helper()
	var allowed, one unix.CPUSet
	qt.Assert(t, qt.IsNil(unix.SchedGetaffinity(all[0].PID, &allowed)))
	for cpu := 0; one.Count() == 0; cpu++ {
		if allowed.IsSet(cpu) {
			one.Set(cpu)
		}
	}
	for _, p := range all {
		qt.Assert(t, qt.IsNil(unix.SchedSetaffinity(p.PID, &one)))
	}
}

// An eighth of the hits of a second may come at once.
func TestSampleRateTakesAllThatAreFew(t *testing.T) {
	events, losses, hits := sampledEvents(t, "specs",
		sampled(trace.Sampling{PerSecond: 8 * 300}),
		func(p *traced) { p.Fire("specs", 1) })
	qt.Check(t, qt.Equals(hits, 300))
	qt.Check(t, qt.HasLen(events, 300))
	qt.Check(t, qt.Equals(weights(events), 300))
	qt.Check(t, qt.Equals(losses.NotSampled, 0))
}

func TestEventsWithoutSamplingStandForOneHit(t *testing.T) {
	for _, every := range []int{0, 1} {
		events, losses, _ := sampledEvents(t, "specs", sampled(trace.Sampling{Every: every}),
			func(p *traced) { p.Fire("specs", 1) })
		qt.Check(t, qt.HasLen(events, 300))
		qt.Check(t, qt.Equals(weights(events), 300))
		qt.Check(t, qt.Equals(losses.NotSampled, 0))
	}
}
