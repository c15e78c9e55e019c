// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
)

// counted returns the hits of all rows and of others.
func counted(s *trace.Snapshot) (inRows, other uint64) {
	for _, row := range s.Rows {
		inRows += row.Count
	}
	return inRows, s.Other.Count
}

// What a snapshot has is the caller's, who may change it.
func TestRowsAreTheCallers(t *testing.T) {
	process := start(t, "target-pie")
	stacks := trace.NewAggregator(trace.Aggregation{By: []string{"stack", "comm", "arg0"}, Value: "arg0",
		Histogram: trace.Exponential(8, 1)})
	s := open(t, process, "gousdt_test:three", aggregating(stacks))
	process.Fire("three", 2)
	before := snapshot(t, stacks)
	qt.Assert(t, qt.HasLen(before.Rows, 1))
	row := before.Rows[0]
	keys, stack, buckets := slices.Clone(row.Keys), slices.Clone(row.Stack), row.Exponential()
	for _, changed := range []*trace.Snapshot{before, before.Merge(func(*trace.Row) string { return "" }),
		before.Top(1), snapshot(t, stacks)} {
		row := changed.Rows[0]
		for i := range row.Keys {
			row.Keys[i] = trace.ValueOf("changed")
		}
		for i := range row.Stack {
			row.Stack[i] = 1
		}
		e := row.Exponential()
		e.Add(buckets)
		again := snapshot(t, stacks).Rows[0]
		for i := range keys {
			qt.Check(t, qt.Equals(again.Keys[i].String(), keys[i].String()))
		}
		qt.Check(t, qt.DeepEquals(again.Stack, stack))
		qt.Check(t, qt.DeepEquals(again.Exponential(), buckets))
	}
	qt.Check(t, qt.IsNil(s.Close()))
}

// The last of as many keys as there can be is right, too, with its sign.
func TestSixteenKeys(t *testing.T) {
	process := start(t, "target-pie")
	by := append(slices.Repeat([]string{"pid"}, 15), "arg0")
	keys := trace.NewAggregator(trace.Aggregation{By: by})
	open(t, process, "gousdt_test:three", aggregating(keys))
	process.Fire("three", 2)
	s := snapshot(t, keys)
	qt.Assert(t, qt.HasLen(s.Rows, 1))
	qt.Assert(t, qt.Equals(s.Rows[0].Count, 2))
	qt.Assert(t, qt.HasLen(s.Rows[0].Keys, 16))
	qt.Check(t, qt.Equals(s.Rows[0].Keys[14].Uint(), uint64(process.PID)))
	qt.Check(t, qt.Equals(s.Rows[0].Keys[15].Int(), -2000000000))
}

// What the caller does with a snapshot does not change the next one.
func TestSnapshotsShareNothing(t *testing.T) {
	process := start(t, "target-pie")
	a := trace.NewAggregator(trace.Aggregation{By: []string{"arg0", "comm", "stack"}, Value: "arg0",
		Histogram: &trace.Histogram{}})
	open(t, process, "gousdt_test:three", aggregating(a))
	process.Fire("three", 2)
	want := snapshot(t, a)
	spoilt := snapshot(t, a)
	qt.Assert(t, qt.HasLen(spoilt.Rows, 1))
	spoilt.By[0] = "other"
	row := &spoilt.Rows[0]
	data, _ := row.Keys[1].Data()
	clear(data)
	clear(row.Keys)
	clear(row.Stack)
	got := snapshot(t, a)
	qt.Check(t, qt.DeepEquals(got.By, want.By))
	qt.Check(t, qt.DeepEquals(rows(got), rows(want)))
	qt.Check(t, qt.Equals(textOf(got.Rows[0].Keys[1]), "target-pie"))
	qt.Check(t, qt.DeepEquals(got.Rows[0].Stack, want.Rows[0].Stack))
	qt.Check(t, qt.IsTrue(len(want.Rows[0].Stack) > 0 && want.Rows[0].Stack[0] != 0))
}

// There are 300 keys and hits of each.
func TestKeysOverTheLimitAreOthers(t *testing.T) {
	process := start(t, "target-pie")
	keys := trace.NewAggregator(trace.Aggregation{
		By:        []string{"arg0"},
		MaxKeys:   100,
		Value:     "arg0",
		Histogram: &trace.Histogram{},
		Min:       true,
		Max:       true,
	})
	opts := aggregating(keys)
	open(t, process, "gousdt_test:specs", opts)
	process.Fire("specs", 7)
	for range 2 {
		s := snapshot(t, keys)
		qt.Assert(t, qt.IsTrue(len(s.Rows) <= 100))
		inRows, other := counted(s)
		qt.Assert(t, qt.Equals(inRows+other, 2100))
		qt.Assert(t, qt.Equals(s.Other.Exponential().Positive.Counts[0] > 0, true))
		for i := range s.Rows {
			qt.Assert(t, qt.Equals(s.Rows[i].Count, 7))
		}
		top := s.Top(3)
		qt.Assert(t, qt.DeepEquals(rows(top), rows(s)[:3]))
		qt.Assert(t,
			qt.Equals(top.Other.Count,
				2100-top.Rows[0].Count-top.Rows[1].Count-top.Rows[2].Count))
		all := s.Top(0).Other
		qt.Assert(t, qt.Equals(all.Sum.Uint(), 7*299*300/2))
		qt.Assert(t, qt.Equals(all.Min.Uint(), 0))
		qt.Assert(t, qt.Equals(all.Max.Uint(), 299))
		qt.Assert(t, qt.Equals(s.Overflow, 0))
	}
}

// More keys come than the kernel has room for, while they are taken.
func TestNothingIsLostWhileKeysAreTaken(t *testing.T) {
	for name, histogram := range map[string]*trace.Histogram{"counts": nil, "histogram": {}} {
		t.Run(name, func(t *testing.T) {
			process := start(t, "target-pie")
			other := process.again(t)
			a := trace.Aggregation{By: []string{"tid", "arg0"}, MaxKeys: 1 << 20,
				Histogram: histogram}
			if histogram != nil {
				a.Value = "arg0"
			}
			cumulative, delta := trace.NewAggregator(a), trace.NewAggregator(a)
			few := a
			few.MaxKeys = 1 // the least room in the kernel
			crowded := trace.NewAggregator(few)
			open(t, process, "gousdt_test:specs", aggregating(cumulative, delta, crowded))

			// Threads are new keys again and again, of two processes at once.
			const threads = 8
			rounds := testprog.Soak(8, 20)
			done := make(chan error, 2)
			for _, p := range []*traced{process, other} {
				go func() {
					var err error
					for range rounds {
						_, e := p.Command("thread specs " + decimal(threads))
						err = errors.Join(err, e)
					}
					done <- err
				}()
			}
			var taken, before uint64
			for running := 2; running > 0; {
				select {
				case err := <-done:
					qt.Assert(t, qt.IsNil(err))
					running--
				case <-time.After(time.Millisecond):
				}
				inRows, others := counted(take(t, delta))
				taken += inRows + others
				inRows, others = counted(snapshot(t, cumulative))
				qt.Assert(t, qt.IsTrue(inRows+others >= before))
				before = inRows + others
			}
			want := uint64(2 * rounds * threads * 300)
			qt.Check(t, qt.Equals(taken, want))
			s := snapshot(t, cumulative)
			inRows, others := counted(s)
			qt.Check(t, qt.Equals(inRows+others, want))
			qt.Check(t, qt.Equals(others, s.Overflow))
			inRows, others = counted(snapshot(t, crowded))
			qt.Check(t, qt.Equals(inRows+others, want))
			t.Logf("%d keys, %d hits overflowed", len(s.Rows), s.Overflow)
		})
	}
}

func TestNormalize(t *testing.T) {
	process := start(t, "target-pie")
	a := trace.NewAggregator(trace.Aggregation{
		By: []string{"str(arg0, 5)", "comm"}, Value: "arg0 & 0", Histogram: &trace.Histogram{},
		Normalize: func(text string) string { return strings.ToUpper(text[:1]) },
	})
	open(t, process, "gousdt_test:strings", aggregating(a))
	process.Fire("strings", 3)
	qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), []string{"[H... target-pie] 3 0"}))
	process.Fire("strings", 2)
	qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), []string{"[H... target-pie] 5 0"}))
}
