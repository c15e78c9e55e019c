// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"math"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/trace"
)

// overflowAttribute is what the metrics SDK specification calls the series of
// all that is over the limit.
const overflowAttribute = "otel.metric.overflow"

// metricsBuilder puts points under their resources.
type metricsBuilder struct {
	receiver    *usdtReceiver
	all         pmetric.Metrics
	temporality pmetric.AggregationTemporality
	scopes      map[*resource]pmetric.ScopeMetrics
}

func newMetricsBuilder(r *usdtReceiver) *metricsBuilder {
	b := &metricsBuilder{
		receiver:    r,
		all:         pmetric.NewMetrics(),
		temporality: pmetric.AggregationTemporalityCumulative,
		scopes:      make(map[*resource]pmetric.ScopeMetrics),
	}
	if r.config.Temporality == Delta {
		b.temporality = pmetric.AggregationTemporalityDelta
	}
	return b
}

func (b *metricsBuilder) scope(r *resource) pmetric.ScopeMetrics {
	scope, ok := b.scopes[r]
	if !ok {
		rm := b.all.ResourceMetrics().AppendEmpty()
		b.receiver.fillResource(rm.Resource(), r)
		scope = rm.ScopeMetrics().AppendEmpty()
		scope.Scope().SetName(metadata.ScopeName)
		b.scopes[r] = scope
	}
	return scope
}

// add adds points of a metric. Ended series get a last point without a value,
// so that a backend does not go on with the one before. Each of these is alone
// in its metric: the Collector's Prometheus exporter reads no further than the
// first.
func (b *metricsBuilder) add(m *metric, all []*series, at time.Time, ended bool) {
	metrics := make(map[*resource]pmetric.Metric)
	var samples map[exemplarSeries]*reservoir
	if m.kind == histogram && !ended {
		samples = m.exemplars.take(at)
	}
	for _, s := range all {
		to, ok := metrics[s.resource]
		if !ok || ended {
			to = b.scope(s.resource).Metrics().AppendEmpty()
			b.describe(to, m)
			metrics[s.resource] = to
		}
		if m.kind == histogram {
			p := to.ExponentialHistogram().DataPoints().AppendEmpty()
			s.fillHistogram(m, p, at, ended)
			s.fillExemplars(samples, p)
		} else {
			s.fillNumber(m, to.Sum().DataPoints().AppendEmpty(), at, ended)
		}
	}
}

func (b *metricsBuilder) describe(to pmetric.Metric, m *metric) {
	to.SetName(m.config.Name)
	to.SetDescription(m.config.Description)
	to.SetUnit(m.unit)
	if m.kind == histogram {
		to.SetEmptyExponentialHistogram().SetAggregationTemporality(b.temporality)
		return
	}
	sum := to.SetEmptySum()
	sum.SetAggregationTemporality(b.temporality)
	sum.SetIsMonotonic(m.kind == counter || m.config.Monotonic)
}

func noValue(ended bool) pmetric.DataPointFlags {
	return pmetric.DefaultDataPointFlags.WithNoRecordedValue(ended)
}

func (s *series) fillNumber(m *metric, p pmetric.NumberDataPoint, at time.Time, ended bool) {
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	s.fillAttributes(m, p.Attributes())
	if p.SetFlags(noValue(ended)); ended {
		return
	}
	if m.kind == counter {
		p.SetIntValue(int64(s.count))
	} else if sum, ok := s.sum.int(); ok {
		p.SetIntValue(sum)
	} else {
		p.SetDoubleValue(s.sum.float())
	}
}

func (s *series) fillHistogram(
	m *metric, p pmetric.ExponentialHistogramDataPoint, at time.Time, ended bool,
) {
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	s.fillAttributes(m, p.Attributes())
	if p.SetFlags(noValue(ended)); ended {
		return
	}
	p.SetCount(s.count)
	p.SetSum(s.sum.float())
	if !s.noExtreme {
		p.SetMin(s.min)
		p.SetMax(s.max)
	}
	p.SetScale(s.buckets.scale)
	p.SetZeroCount(s.buckets.zero)
	s.buckets.positive.fill(p.Positive())
	s.buckets.negative.fill(p.Negative())
}

func (b *buckets) fill(to pmetric.ExponentialHistogramDataPointBuckets) {
	to.SetOffset(int32(b.offset))
	to.BucketCounts().FromRaw(b.counts)
}

func (s *series) fillAttributes(m *metric, to pcommon.Map) {
	if s.attributes == nil && s.resource == nil {
		to.PutBool(overflowAttribute, true)
		return
	}
	for i, name := range m.attributes {
		putValue(to, name, s.attributes[i])
	}
}

// putValue sets an attribute unless there is no value.
func putValue(to pcommon.Map, name string, v trace.Value) {
	switch {
	case !v.IsPresent():
	case v.Kind() == trace.Text:
		data, _ := v.Data()
		putText(to, name, data)
	case v.Kind() == trace.Bytes:
		data, _ := v.Data()
		to.PutEmptyBytes(name).FromRaw(data)
	case v.Kind() == trace.Float:
		to.PutDouble(name, v.Float())
	case isLarge(v):
		to.PutStr(name, strconv.FormatUint(v.Uint(), 10))
	default:
		to.PutInt(name, v.Int())
	}
}

// isLarge reports whether a value is an integer that OTLP, whose integers have
// a sign, has no room for. The specification wants such a one as a text.
func isLarge(v trace.Value) bool { return v.Kind() == trace.Unsigned && v.Uint() > math.MaxInt64 }

// validText returns bytes of a traced program as the UTF-8 that OTLP wants. A
// text that was cut may end within a character.
func validText[T string | []byte](text T) string {
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// putText sets an attribute to a text, of whoever it is. All texts that leave
// go through here or through validText: a backend that checks them refuses the
// batch of a whole node for one that is not UTF-8.
func putText[T string | []byte](to pcommon.Map, name string, text T) {
	to.PutStr(name, validText(text))
}
