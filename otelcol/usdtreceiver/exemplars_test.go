// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

func TestExemplarsAreOfSpansThatTheMetricHasCounted(t *testing.T) {
	const (
		where = `str(arg0, 6) == "SELECT"`
		other = `str(arg0, 6) == "UPDATE"`
	)
	pair := func(changes func(*MetricConfig)) *MetricConfig {
		c := &MetricConfig{Name: "m", Pair: "p:query"}
		changes(c)
		return c
	}
	for _, test := range []struct {
		name   string
		metric *MetricConfig
		want   bool
	}{
		{"the same pair", pair(func(*MetricConfig) {}), true},
		{"the same condition", pair(func(c *MetricConfig) { c.Where = where }), true},
		{"attributes of the call", pair(func(c *MetricConfig) {
			c.Attributes = map[string]string{"a": "str(arg0, 6)", "b": "arg1", "c": "comm"}
		}), true},
		{"attributes of the start, and of calls that fail", pair(func(c *MetricConfig) {
			c.Attributes = map[string]string{"a": "start.arg0", "error.type": "error(probe)"}
		}), true},
		{"another condition", pair(func(c *MetricConfig) { c.Where = other }), false},
		{"another pair", pair(func(c *MetricConfig) { c.Pair = "p:parse" }), false},
		{"matched otherwise", pair(func(c *MetricConfig) { c.MatchBy = "arg0" }), false},
		{"an attribute that is computed", pair(func(c *MetricConfig) {
			c.Attributes = map[string]string{"a": "arg1 & 0xff"}
		}), false},
		{"another value than the time", pair(func(c *MetricConfig) { c.Value = "arg1" }), false},
		{"the time by its name", pair(func(c *MetricConfig) { c.Value = "duration" }), true},
		{"no pair", &MetricConfig{Name: "m", Histogram: "p:query__done", Value: "arg0"}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			m, err := test.metric.parse(ByContainer, 10)
			qt.Assert(t, qt.IsNil(err))
			s, err := (&SpanConfig{Pair: "p:query", LongerThan: time.Millisecond,
				Where: where}).parse()
			qt.Assert(t, qt.IsNil(err))
			_, ok := exemplarsFor(m, s)
			qt.Assert(t, qt.Equals(ok, test.want))
		})
	}
}

// A point has few of the exemplars of its series and of its time, and what
// waits for points is bounded.
func TestExemplarsAreBounded(t *testing.T) {
	m, err := (&MetricConfig{Name: "m", Pair: "p:query",
		Attributes: map[string]string{"operation": "str(arg0, 6)"}}).parse(ByContainer, 10)
	qt.Assert(t, qt.IsNil(err))
	began, r := time.Unix(1000, 0), new(resource)
	s := &series{resource: r, attributes: pcommon.NewMap(), start: began}
	s.attributes.PutStr("operation", "SELECT")
	points := func(at time.Time) (sent [][]int64) {
		b := builderOf(Cumulative)
		b.add(m, []*series{s}, at, false)
		first := b.all.ResourceMetrics().At(0).ScopeMetrics().At(0).Metrics().At(0)
		for _, p := range first.ExponentialHistogram().DataPoints().All() {
			sent = append(sent, tookOf(p))
		}
		return sent
	}
	// As the points of the series say it.
	const attributes = `"operation"=1:"SELECT" `
	of := seriesID{r, attributes}
	m.exemplars.add(of, exemplar{at: began.Add(-1), took: 1})
	m.exemplars.add(of, exemplar{at: began.Add(time.Second), took: 2})
	m.exemplars.add(of, exemplar{at: began.Add(time.Minute), took: 3})
	m.exemplars.add(seriesID{r, `"operation"=1:"UPDATE" `},
		exemplar{at: began.Add(time.Second), took: 4})
	m.exemplars.add(seriesID{new(resource), attributes},
		exemplar{at: began.Add(time.Second), took: 5})
	qt.Check(t, qt.DeepEquals(points(began.Add(2*time.Second)), [][]int64{{2}}))
	qt.Check(t, qt.DeepEquals(points(began.Add(time.Minute)), [][]int64{{3}}))
	qt.Check(t, qt.DeepEquals(points(began.Add(time.Hour)), [][]int64{nil}))

	for range 100 {
		m.exemplars.add(of, exemplar{at: began, took: 6})
	}
	for range 2 * maxExemplarSeries {
		m.exemplars.add(seriesID{new(resource), ""}, exemplar{at: began})
	}
	qt.Check(t, qt.HasLen(m.exemplars.bySeries, maxExemplarSeries))
	qt.Check(t, qt.HasLen(points(began.Add(time.Hour))[0], maxExemplars))
}

func tookOf(p pmetric.ExponentialHistogramDataPoint) (took []int64) {
	for _, e := range p.Exemplars().All() {
		took = append(took, e.IntValue())
	}
	return took
}
