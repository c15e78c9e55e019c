// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/trace"
)

func TestPointsOfSums(t *testing.T) {
	for _, monotonic := range []bool{false, true} {
		c := &MetricConfig{
			Name: "bytes", Unit: "By", Sum: "p:n", Value: "arg0", Monotonic: monotonic,
			Attributes: map[string]string{"who": "str(arg1)", "kind": "arg2"},
		}
		m, err := c.parse(ByContainer, 10)
		qt.Assert(t, qt.IsNil(err))
		start := time.Unix(1000, 0)
		table, r := newTable(10), &resource{group: 1, instance: "x"}
		row := &trace.Row{
			Keys:  []trace.Value{trace.ValueOf(uint64(1)), trace.ValueOf(int64(-3)), trace.ValueOf("a\xff")},
			Count: 2, Sum: trace.ValueOf(int64(-5)),
		}
		table.add(row, 1, r, start, start.Add(time.Second))
		table.add(row, 1, r, start.Add(time.Second), start.Add(2*time.Second))
		b := newMetricsBuilder(Cumulative)
		b.add(m, table.all(), start.Add(2*time.Second), false)
		b.add(m, table.all(), start.Add(3*time.Second), true)

		sent := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		qt.Check(t, qt.Equals(sent.Unit(), "By"))
		qt.Check(t, qt.Equals(sent.Sum().IsMonotonic(), monotonic))
		qt.Check(t, qt.Equals(sent.Sum().AggregationTemporality(), pmetric.AggregationTemporalityCumulative))
		p := sent.Sum().DataPoints().At(0)
		qt.Check(t, qt.Equals(p.IntValue(), -10))
		qt.Check(t, qt.Equals(p.StartTimestamp().AsTime().Unix(), 1000))
		qt.Check(t, qt.Equals(p.Timestamp().AsTime().Unix(), 1002))
		qt.Check(t, qt.DeepEquals(p.Attributes().AsRaw(), map[string]any{"kind": int64(-3), "who": "a\uFFFD"}))
		last := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Sum().DataPoints().At(0)
		qt.Check(t, qt.IsTrue(last.Flags().NoRecordedValue()))
	}
}
