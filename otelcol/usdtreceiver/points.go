// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/internal/tracing"
)

// metricsBuilder collects the points of each resource.
type metricsBuilder struct {
	receiver    *usdtReceiver
	all         pmetric.Metrics
	temporality pmetric.AggregationTemporality
	scopes      map[*resource]pmetric.ScopeMetrics
}

func newMetricsBuilder(r *usdtReceiver) *metricsBuilder {
	b := &metricsBuilder{receiver: r, all: pmetric.NewMetrics(),
		temporality: pmetric.AggregationTemporalityCumulative,
		scopes:      make(map[*resource]pmetric.ScopeMetrics)}
	if r.config.Temporality == Delta {
		b.temporality = pmetric.AggregationTemporalityDelta
	}
	return b
}

// metric adds an empty metric of a resource.
func (b *metricsBuilder) metric(r *resource, name, description, unit string) pmetric.Metric {
	m := scopeOf(b.receiver, b.scopes, r, func() (pmetric.ResourceMetrics, pmetric.ScopeMetrics) {
		rm := b.all.ResourceMetrics().AppendEmpty()
		return rm, rm.ScopeMetrics().AppendEmpty()
	}).Metrics().AppendEmpty()
	m.SetName(name)
	m.SetDescription(description)
	m.SetUnit(unit)
	return m
}

// add adds points of a metric. Ended series get a last point without a value,
// so that a backend does not keep the one before. Each of these is alone in its
// metric: the Collector's Prometheus exporter reads no further than the first.
func (b *metricsBuilder) add(m *metric, all []*series, at time.Time, ended bool) {
	isHistogram := m.isHistogram()
	metrics := make(map[*resource]pmetric.Metric)
	var samples map[seriesID]*reservoir
	if isHistogram && !ended {
		samples = m.exemplars.take(at)
	}
	for _, s := range all {
		to, ok := metrics[s.resource]
		isNew := !ok || ended
		if isNew {
			to = b.metric(s.resource, m.config.Name, m.config.Description, m.unit)
			metrics[s.resource] = to
		}
		switch {
		case m.limits != nil:
			if isNew {
				to.SetEmptyHistogram().SetAggregationTemporality(b.temporality)
			}
			p := to.Histogram().DataPoints().AppendEmpty()
			if s.begin(p, at, ended); !ended {
				s.fillHistogram(m, p, samples)
				p.ExplicitBounds().FromRaw(m.config.Buckets)
				p.BucketCounts().FromRaw(s.explicit)
			}
		case isHistogram:
			if isNew {
				to.SetEmptyExponentialHistogram().SetAggregationTemporality(b.temporality)
			}
			p := to.ExponentialHistogram().DataPoints().AppendEmpty()
			if s.begin(p, at, ended); !ended {
				s.fillHistogram(m, p, samples)
				p.SetScale(int32(tracing.Scale(m.config.PerDoubling)))
				p.SetZeroCount(s.buckets.Zero)
				p.Positive().SetOffset(int32(s.buckets.Positive.Offset))
				p.Positive().BucketCounts().FromRaw(s.buckets.Positive.Counts)
				p.Negative().SetOffset(int32(s.buckets.Negative.Offset))
				p.Negative().BucketCounts().FromRaw(s.buckets.Negative.Counts)
			}
		default:
			if isNew {
				to.SetEmptySum().SetAggregationTemporality(b.temporality)
				to.Sum().SetIsMonotonic(m.kind == ofCount || m.config.Monotonic)
			}
			p := to.Sum().DataPoints().AppendEmpty()
			s.begin(p, at, ended)
			if sum, ok := s.sum.int(); ended {
			} else if m.kind == ofCount {
				p.SetIntValue(int64(s.count))
			} else if ok {
				p.SetIntValue(sum)
			} else {
				p.SetDoubleValue(s.sum.float())
			}
		}
	}
}

// ageSuffix ends the name of the metric that has the age of the oldest open
// call.
const ageSuffix = ".max_age"

// addOpen adds the number of open calls, and the age of the oldest.
func (b *metricsBuilder) addOpen(m *metric, at time.Time) {
	gauges := make(map[*resource][2]pmetric.Gauge)
	for _, s := range m.known {
		to, ok := gauges[s.resource]
		if !ok {
			c := m.config
			to[0] = b.metric(s.resource, c.Name, c.Description, "{call}").SetEmptyGauge()
			to[1] = b.metric(s.resource, c.Name+ageSuffix, c.Description, "s").SetEmptyGauge()
			gauges[s.resource] = to
		}
		count, age := to[0].DataPoints().AppendEmpty(), to[1].DataPoints().AppendEmpty()
		count.SetIntValue(int64(s.count))
		age.SetDoubleValue(s.max)
		for _, p := range []pmetric.NumberDataPoint{count, age} {
			p.SetTimestamp(pcommon.NewTimestampFromTime(at))
			s.attributes.CopyTo(p.Attributes())
		}
	}
}

// begin sets all of a point but its value.
func (s *series) begin(p interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
	SetFlags(pmetric.DataPointFlags)
}, at time.Time, ended bool) {
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	s.attributes.CopyTo(p.Attributes())
	p.SetFlags(pmetric.DefaultDataPointFlags.WithNoRecordedValue(ended))
}

// histogramPoint is a point of either kind of histogram.
type histogramPoint interface {
	SetCount(uint64)
	SetSum(float64)
	SetMin(float64)
	SetMax(float64)
	Exemplars() pmetric.ExemplarSlice
}

// fillHistogram sets all of a value but the buckets.
func (s *series) fillHistogram(m *metric, p histogramPoint, samples map[seriesID]*reservoir) {
	p.SetCount(s.count)
	p.SetSum(s.sum.float() / m.divisor)
	if s.resource != nil { // the extremes of the overflow are of other intervals
		p.SetMin(s.min / m.divisor)
		p.SetMax(s.max / m.divisor)
	}
	if len(samples) > 0 {
		s.fillExemplars(m, samples[idOf(s.resource, s.attributes)], p)
	}
}
