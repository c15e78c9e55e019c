// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"maps"
	"math"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/receiver/receivertest"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
)

// builderOf is that of a receiver with no other settings.
func builderOf(t Temporality) *metricsBuilder {
	r := newReceiver(receivertest.NewNopSettings(metadata.Type), defaultConfig())
	r.config.Temporality = t
	r.processes = &processes{boot: "boot"}
	return newMetricsBuilder(r)
}

func TestPointsOfSums(t *testing.T) {
	for _, monotonic := range []bool{false, true} {
		c := &MetricConfig{
			Name: "bytes", Unit: "By", Sum: "p:n", Value: "arg0", Monotonic: monotonic,
			Attributes: map[string]string{"who": "str(arg1)", "kind": "arg2"},
		}
		m, err := c.parse(ByContainer, 10)
		qt.Assert(t, qt.IsNil(err))
		start := time.Unix(1000, 0)
		r := &resource{group: 1, instance: "x"}
		row := &trace.Row{
			Keys:  []trace.Value{{}, trace.ValueOf(int64(-3)), trace.ValueOf("a\xff")},
			Count: 2, Sum: trace.ValueOf(int64(-5)),
		}
		m.add(row, r, start, start.Add(time.Second))
		m.add(row, r, start.Add(time.Second), start.Add(2*time.Second))
		b := builderOf(Cumulative)
		b.add(m, m.all(), start.Add(2*time.Second), false)
		b.add(m, m.all(), start.Add(3*time.Second), true)

		sent := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		qt.Check(t, qt.Equals(sent.Unit(), "By"))
		qt.Check(t, qt.Equals(sent.Sum().IsMonotonic(), monotonic))
		qt.Check(t, qt.Equals(sent.Sum().AggregationTemporality(),
			pmetric.AggregationTemporalityCumulative))
		p := sent.Sum().DataPoints().At(0)
		qt.Check(t, qt.Equals(p.IntValue(), -10))
		qt.Check(t, qt.Equals(p.StartTimestamp().AsTime().Unix(), 1000))
		qt.Check(t, qt.Equals(p.Timestamp().AsTime().Unix(), 1002))
		qt.Check(t, qt.DeepEquals(p.Attributes().AsRaw(),
			map[string]any{"kind": int64(-3), "who": "a\uFFFD"}))
		last := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(1).Sum().DataPoints().At(0)
		qt.Check(t, qt.IsTrue(last.Flags().NoRecordedValue()))
	}
}

// A counter by an attribute, for rows that have the control group before it.
func counterBy(t *testing.T, limit int) *metric {
	c := &MetricConfig{Name: "hits", Count: "p:n", Attributes: map[string]string{"by": "arg0"}}
	m, err := c.parse(ByContainer, limit)
	qt.Assert(t, qt.IsNil(err))
	return m
}

// rowBy returns a row of its.
func rowBy(count uint64, v trace.Value) *trace.Row {
	return &trace.Row{Count: count, Keys: []trace.Value{{}, v}}
}

// Values that are one in OTLP, because they come of sites that describe them
// otherwise or because no text has such bytes, are one series: a backend would
// keep one of two equal ones.
func TestEqualAttributesAreOneSeries(t *testing.T) {
	m := counterBy(t, 10)
	r, at := &resource{group: 1}, time.Unix(1000, 0)
	for _, v := range []trace.Value{
		trace.ValueOf(uint64(5)), trace.ValueOf(int64(5)), trace.ValueOf("5"),
		trace.ValueOf("a\xce"), trace.ValueOf("a\xcf"), trace.ValueOf("a\uFFFD"),
		trace.ValueOf(uint64(math.MaxUint64)), trace.ValueOf(int64(-1)),
		trace.ValueOf(uint64(0)), {}, trace.ValueOf(""),
	} {
		m.add(rowBy(1, v), r, at, at)
	}
	b := builderOf(Cumulative)
	b.add(m, m.all(), at, false)
	got := make(map[any]int64)
	first := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
	for _, p := range first.Sum().DataPoints().All() {
		by := p.Attributes().AsRaw()["by"]
		qt.Check(t, qt.Equals(got[by], 0), qt.Commentf("%v", by))
		got[by] = p.IntValue()
	}
	qt.Check(t, qt.DeepEquals(got, map[any]int64{
		int64(5): 2, "5": 1, "a\uFFFD": 3, "18446744073709551615": 1, int64(-1): 1, int64(0): 1,
		nil: 1, "": 1,
	}))
}

// The exporter for Prometheus reads the first of the points that end, and no
// other.
func TestEachEndedSeriesIsAlone(t *testing.T) {
	m := counterBy(t, 10)
	r, at := &resource{group: 1}, time.Unix(1000, 0)
	for i := range 3 {
		m.add(rowBy(1, trace.ValueOf(uint64(i))), r, at, at)
	}
	b := builderOf(Cumulative)
	b.add(m, m.end(at.Add(1), func(*resource) bool { return true }), at, true)
	metrics := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics()
	qt.Assert(t, qt.Equals(metrics.Len(), 3))
	for _, m := range metrics.All() {
		qt.Assert(t, qt.Equals(m.Sum().DataPoints().Len(), 1))
		qt.Check(t, qt.IsTrue(m.Sum().DataPoints().At(0).Flags().NoRecordedValue()))
	}
}

// What is over the limit is a series of each receiver of each machine.
func TestOverflowIsOfItsReceiver(t *testing.T) {
	at := time.Unix(1000, 0)
	seen := make(map[any]bool)
	for range 2 {
		for _, boot := range []string{"a", "b"} {
			for _, name := range []string{"", "other"} {
				b := builderOf(Cumulative)
				b.receiver.settings.ID = component.NewIDWithName(metadata.Type, name)
				b.receiver.processes.boot = boot
				m := counterBy(t, 1)
				m.add(rowBy(7, trace.ValueOf("x")), &resource{group: 1}, at, at)
				b.add(m, m.all(), at, false)
				rm := b.all.ResourceMetrics().At(0)
				p := rm.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().At(0)
				qt.Check(t, qt.Equals(p.IntValue(), 7))
				qt.Check(t, qt.DeepEquals(p.Attributes().AsRaw(),
					map[string]any{"otel.metric.overflow": true}))
				attributes := maps.Clone(rm.Resource().Attributes().AsRaw())
				seen[attributes["service.instance.id"]] = true
				delete(attributes, "service.instance.id")
				qt.Check(t,
					qt.DeepEquals(attributes, map[string]any{"service.name": "unknown_service"}))
			}
		}
	}
	qt.Check(t, qt.HasLen(seen, 4)) // the same ones again after a restart
}

func TestIntegersWithoutRoom(t *testing.T) {
	to := pcommon.NewMap()
	putValue(to, "most", trace.ValueOf(uint64(math.MaxInt64)))
	putValue(to, "more", trace.ValueOf(uint64(math.MaxInt64)+1))
	qt.Check(t, qt.DeepEquals(to.AsRaw(),
		map[string]any{"most": int64(math.MaxInt64), "more": "9223372036854775808"}))
}
