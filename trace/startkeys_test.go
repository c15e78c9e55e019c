// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

// Arguments of the start of a call can be keys, and be added up, at its end.
// The text is overwritten before that.
func TestKeysOfTheStart(t *testing.T) {
	forEachMode(t, func(t *testing.T, mode usdt.Mode) {
		c := startCaller(t, copyOf(t, "calls"))
		latency := &trace.Latency{Pair: elfnote.MustParsePairPattern("gousdt_calls:*")}
		aggregator := func(a trace.Aggregation) *trace.Aggregator {
			a.Latency = latency
			return trace.NewAggregator(a)
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
			Aggregators: []*trace.Aggregator{ids, byText, atEnd, last, missing, times}})
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
	definitions := &providers.Definitions{}
	qt.Assert(t, qt.IsNil(definitions.Parse("statement.d", []byte(statementDefinition))))
	pair := elfnote.MustParsePairPattern("gousdt_calls:statement")
	statements := trace.NewAggregator(trace.Aggregation{By: []string{"query"},
		Latency: &trace.Latency{Pair: pair}})
	s := newSession(t, &trace.SessionOptions{Definitions: definitions,
		Aggregators: []*trace.Aggregator{statements}})
	c := startCaller(t, copyOf(t, "calls"))
	_, err := s.Attach(usdt.Target{Path: c.path}, nil, definitions.Patterns(pair)...)
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
