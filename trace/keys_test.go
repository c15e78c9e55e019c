// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
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
	stacks := &trace.Aggregation{By: []string{"stack", "comm", "arg0"}, Value: "arg0",
		Histogram: trace.Exponential(8, 1)}
	s := open(t, process, "gousdt_test:three", aggregating(stacks))
	process.Fire("three", 2)
	before := snapshot(t, stacks)
	qt.Assert(t, qt.HasLen(before.Rows, 1))
	row := before.Rows[0]
	keys, stack, buckets := slices.Clone(row.Keys), slices.Clone(row.Stack), row.Histogram(0)
	for _, changed := range []*trace.Snapshot{before, before.Merge(func(*trace.Row) string { return "" }),
		before.Top(1), snapshot(t, stacks)} {
		row := changed.Rows[0]
		for i := range row.Keys {
			row.Keys[i] = trace.ValueOf("changed")
		}
		for i := range row.Stack {
			row.Stack[i] = 1
		}
		row.Histogram(0)[0].Count++
		again := snapshot(t, stacks).Rows[0]
		for i := range keys {
			qt.Check(t, qt.Equals(again.Keys[i].String(), keys[i].String()))
		}
		qt.Check(t, qt.DeepEquals(again.Stack, stack))
		qt.Check(t, qt.Equals(fmt.Sprint(again.Histogram(0)), fmt.Sprint(buckets)))
	}
	qt.Check(t, qt.IsNil(s.Close()))
}

// The last of as many keys as there can be is right, too, with its sign.
func TestSixteenKeys(t *testing.T) {
	process := start(t, "target-pie")
	by := append(slices.Repeat([]string{"pid"}, 15), "arg0")
	keys := &trace.Aggregation{By: by}
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
	a := &trace.Aggregation{By: []string{"arg0", "comm", "stack"}, Value: "arg0",
		Histogram: &trace.Histogram{}}
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
	keys := &trace.Aggregation{
		By:        []string{"arg0"},
		MaxKeys:   100,
		Value:     "arg0",
		Histogram: &trace.Histogram{},
		Min:       true,
		Max:       true,
	}
	opts := aggregating(keys)
	open(t, process, "gousdt_test:specs", opts)
	process.Fire("specs", 7)
	for range 2 {
		s := snapshot(t, keys)
		qt.Assert(t, qt.IsTrue(len(s.Rows) <= 100))
		inRows, other := counted(s)
		qt.Assert(t, qt.Equals(inRows+other, 2100))
		qt.Assert(t, qt.Equals(s.Other.Histogram(0)[0].Count > 0, true))
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
			again := a
			cumulative, delta := &a, &again
			few := a
			few.MaxKeys = 1 // the least room in the kernel
			crowded := &few
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
	a := &trace.Aggregation{
		By: []string{"str(arg0, 5)", "comm"}, Value: "arg0 & 0", Histogram: &trace.Histogram{},
		Normalize: func(_, text string) string { return strings.ToUpper(text[:1]) },
	}
	open(t, process, "gousdt_test:strings", aggregating(a))
	process.Fire("strings", 3)
	qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), []string{"[H... target-pie] 3 0"}))
	process.Fire("strings", 2)
	qt.Assert(t, qt.DeepEquals(rows(snapshot(t, a)), []string{"[H... target-pie] 5 0"}))
}

// Texts that differ in what is normalized are cut at different places.
func TestNormalizedTextsThatAreCut(t *testing.T) {
	process := start(t, "target-pie")
	var given []string
	a := &trace.Aggregation{By: []string{"str(arg0, 3)", "comm"},
		Normalize: func(key, text string) string {
			given = append(given, key+": "+text)
			return text
		}}
	open(t, process, "gousdt_test:strings", aggregating(a))
	process.Fire("strings", 3)
	qt.Check(t, qt.Equals(snapshot(t, a).Rows[0].Keys[0].String(), "hel..."))
	qt.Check(t, qt.DeepEquals(given, []string{"str(arg0, 3): hello,"}))
}

// No hit is counted by the key of another one, although threads are preempted
// in the middle of a hit and keys are taken at that moment.
func TestHitsAreCountedByTheirOwnKeys(t *testing.T) {
	process := start(t, "target-pie")
	keys := &trace.Aggregation{By: []string{"tid", "arg0", "comm", "pid", "uid"},
		MaxKeys: 8192}
	open(t, process, "gousdt_test:specs", aggregating(keys))
	const rounds, threads, specs = 20, 16, 300
	for range rounds {
		process.Thread("specs", threads)
		s := take(t, keys)
		for i := range s.Rows {
			if row := &s.Rows[i]; row.Count != 1 {
				t.Errorf("%v: %d", row.Keys, row.Count)
			}
		}
		inRows, others := counted(s)
		qt.Check(t, qt.Equals(inRows+others, threads*specs))
	}
}

// Arguments of the start of a call can be keys, and be added up, at its end.
// The text is overwritten before that.
func TestKeysOfTheStart(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"))
		latency := &trace.Latency{Pair: "gousdt_calls:*"}
		aggregator := func(a trace.Aggregation) *trace.Aggregation {
			a.Latency = latency
			return &a
		}
		ids := aggregator(trace.Aggregation{By: []string{"start.arg0"}, Value: "start.arg0",
			Sum: true, Max: true})
		byText := aggregator(trace.Aggregation{By: []string{"str(start.arg1, 2)", "pid"},
			Value: "duration", Sum: true})
		atEnd := aggregator(trace.Aggregation{Value: "arg1", Sum: true})
		last := aggregator(trace.Aggregation{Value: "start.arg0 & 0xff", Histogram: &trace.Histogram{}})
		missing := aggregator(trace.Aggregation{By: []string{"start.arg7"}})
		times := aggregator(trace.Aggregation{Sum: true})
		s := newSession(t, &trace.SessionOptions{Mode: mode,
			Aggregations: []*trace.Aggregation{ids, byText, atEnd, last, missing, times}})
		attach(t, s, usdt.Target{Path: c.path}, "*", nil)
		calls := c.call("nested")
		var sum int64
		texts := make(map[string]uint64)
		for id, call := range calls {
			sum += id
			texts[call.name[:2]]++
		}
		rows := snapshot(t, ids).Rows
		qt.Check(t, qt.HasLen(rows, len(calls)))
		for _, row := range rows {
			id := row.Keys[0].Int()
			_, known := calls[id]
			qt.Check(t, qt.IsTrue(known))
			qt.Check(t, qt.Equals(row.Count, 1))
			qt.Check(t, qt.Equals(row.Sum.Int(), id))
			qt.Check(t, qt.Equals(row.Max.Int(), id))
		}
		total := uint64(0)
		for _, row := range snapshot(t, byText).Rows {
			qt.Check(t, qt.Equals(row.Count, texts[textOf(row.Keys[0])]))
			qt.Check(t, qt.Equals(row.Keys[1].Int(), int64(c.pid)))
			total += row.Sum.Uint()
		}
		qt.Check(t, qt.Equals(snapshot(t, times).Rows[0].Sum.Uint(), total))
		qt.Check(t, qt.Equals(snapshot(t, atEnd).Rows[0].Sum.Int(), sum))
		qt.Check(t, qt.Equals(snapshot(t, last).Rows[0].Count, uint64(len(calls))))
		qt.Check(t, qt.HasLen(snapshot(t, missing).Rows, 0))
		losses, err := s.Losses()
		qt.Assert(t, qt.IsNil(err))
		qt.Check(t, qt.Equals(losses, trace.Losses{}))
	})
}

func textOf(v trace.Value) string {
	data, _ := v.Data()
	return string(data)
}

// The name of a call's argument is that of its start, whatever ends it.
func TestKeysOfCallsOfSeveralProbes(t *testing.T) {
	definitions := &trace.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("statement.d", []byte(statementDefinition))))
	pair := "gousdt_calls:statement"
	statements := &trace.Aggregation{By: []string{"query"},
		Latency: &trace.Latency{Pair: pair}}
	s := newSession(t, &trace.SessionOptions{Definitions: definitions,
		Aggregations: []*trace.Aggregation{statements}})
	c := startCaller(t, copyOf(t, "calls"))
	_, err := s.Attach(usdt.Target{Path: c.path}, nil, patternsOf(t, definitions, pair)...)
	qt.Assert(t, qt.IsNil(err))
	c.call("statements")
	counts := make(map[string]uint64)
	for _, row := range snapshot(t, statements).Rows {
		counts[textOf(row.Keys[0])] = row.Count
	}
	qt.Check(t, qt.DeepEquals(counts, map[string]uint64{"simple": 2, "extended": 2, "change": 2,
		"simple change": 1, "error": 1, "extended error": 1, "parse error": 1,
		"error in a part": 1, "rollback": 1, "same frame": 2}))
	losses, err := s.Losses()
	qt.Assert(t, qt.IsNil(err))
	qt.Check(t, qt.Equals(losses, trace.Losses{}))
}
