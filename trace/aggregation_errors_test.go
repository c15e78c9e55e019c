// SPDX-License-Identifier: BSD-2-Clause

//go:build linux

package trace_test

import (
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
	"github.com/gousdt/gousdt/usdt"
)

func TestAggregationErrors(t *testing.T) {
	testprog.RequireBPF(t)
	pair := elfnote.MustParsePairPattern("a..b")
	for _, test := range []struct {
		aggregation trace.Aggregation
		want        string // after the aggregator
	}{
		{trace.Aggregation{Sum: true}, "Value: a sum, minimum, maximum or histogram needs .*"},
		{trace.Aggregation{Histogram: &trace.Histogram{}},
			"Value: a sum, minimum, maximum or histogram needs .*"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(1, 10, 4)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(10, 1, 1)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Limits(2, 1)},
			`(?s).*the limits must ascend.*`},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(0, 10, 0)},
			"Histogram: the distance from low up to high must be a multiple of the step"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Linear(0, math.MaxInt64, 1)},
			"Histogram: there are more than 65536 buckets.*"},
		{trace.Aggregation{Value: "arg0", Histogram: trace.Exponential(3, 0)},
			"Histogram: there can be 1, 2, 4, 8 or 16 buckets for a doubling"},
		{trace.Aggregation{Value: "arg0", Max: true, Histogram: trace.Linear(0, 8, 1)},
			"Histogram: a linear histogram has no Min and Max.*"},
		{trace.Aggregation{Value: "comm"},
			`Value: expression "comm", at column 1: a number is expected: .*`},
		{trace.Aggregation{Value: "arg"},
			`Value: expression "arg", at column 1: arg is not known.*`},
		{trace.Aggregation{By: []string{"pid", "12"}},
			`By\[1\]: expression "12", at column 1: a key is expected.*`},
		{trace.Aggregation{By: []string{"str(arg0, 256)", "str(arg1, 128)"}},
			"By: the keys take 408 bytes.*"},
		{trace.Aggregation{By: slices.Repeat([]string{"pid"}, 17)}, "By: 17 keys are more than 16"},
		{trace.Aggregation{MaxKeys: -1}, "MaxKeys: -1 is not between 0 and .*"},
		{trace.Aggregation{MaxKeys: 1 << 25}, "MaxKeys: .* is not between 0 and .*"},
		{trace.Aggregation{Where: "arg0 =="}, `Where: expression "arg0 ==", at column 8: .*`},
		{trace.Aggregation{Latency: &trace.Latency{}}, "Latency: Pair: no pair of probes is given"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "comm"}},
			"Latency: By: .*a number is expected.*"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, By: "duration"}},
			"Latency: By: .*only a call between .*"},
		{trace.Aggregation{Latency: &trace.Latency{Pair: pair, DoneBy: "("}},
			"Latency: DoneBy: expression .*"},
		{trace.Aggregation{Value: "start.arg0"}, "Value: .*only a call between .*"},
		{trace.Aggregation{By: []string{"duration"}}, `By\[0\]: .*only a call between .*`},
		{trace.Aggregation{Where: "duration > 5ms"},
			"Where: duration, failed and start.argN are known only at the end of a call: .*"},
		{trace.Aggregation{Where: "!(start.arg0 == 1)"},
			"Where: duration, failed and start.argN are known only at the end of a call: .*"},
	} {
		_, err := trace.New(aggregating(trace.NewAggregator(trace.Aggregation{}),
			trace.NewAggregator(test.aggregation)))
		qt.Check(t, qt.ErrorMatches(err, `option Aggregators\[1\]: `+test.want))
		var outer, inner *tracing.OptionError
		qt.Assert(t, qt.ErrorAs(err, &outer))
		qt.Check(t, qt.Equals(outer.Field, "Aggregators"))
		qt.Check(t, qt.Equals(outer.Index, 1))
		qt.Assert(t, qt.ErrorAs(outer.Err, &inner))
		qt.Check(t, qt.Equals(strings.HasPrefix(inner.Error(), inner.Field), true))
	}
	_, err := trace.New(&trace.SessionOptions{Aggregators: []*trace.Aggregator{nil}})
	qt.Check(t, qt.ErrorMatches(err, `option Aggregators\[0\]: the aggregator is nil`))
	// The hits of neither have a duration.
	_, err = trace.New(&trace.SessionOptions{Filter: "pid > 1 && duration > 5ms",
		Aggregators: []*trace.Aggregator{
			trace.NewAggregator(trace.Aggregation{Latency: &trace.Latency{Pair: pair}}),
			trace.NewAggregator(trace.Aggregation{Value: "arg0", Sum: true})}})
	qt.Check(t, qt.ErrorMatches(err, `option Aggregators\[1\]: the filter asks for duration, .*`))
	_, err = trace.New(&trace.SessionOptions{Filter: "!failed", Events: &trace.EventOptions{},
		Aggregators: []*trace.Aggregator{
			trace.NewAggregator(trace.Aggregation{Latency: &trace.Latency{Pair: pair}})}})
	qt.Check(t, qt.ErrorMatches(err, `option Events: there are no Spans: the filter asks for .*`))
	for value, want := range map[string]string{
		"arg0": ".*arg0 of gousdt_test:floats is a float.*",
		"arg7": ".*nothing can be measured: gousdt_test:.* has no arg7",
	} {
		_, err := trace.Open(usdt.Target{Path: testprog.Path(t, "target-pie")},
			aggregating(trace.NewAggregator(trace.Aggregation{Value: value,
				Histogram: &trace.Histogram{}})),
			elfnote.Exact("gousdt_test", "floats"))
		qt.Check(t, qt.ErrorMatches(err, want))
	}
}
