// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/collector/consumer/consumererror"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// metricsSource computes all metrics of a receiver, in one session.
type metricsSource struct {
	*source
	metrics     []*metric
	aggregators []*trace.Aggregator
	tables      []*table
	open        []*openMetric
}

// maxSynced is how many processes that the watch has not seen yet are scanned
// in a collection.
const maxSynced = 64

// format is what the own metrics of the Collector call this kind of data.
const format = "usdt"

func (r *usdtReceiver) startMetrics() error {
	m := &metricsSource{}
	var items []item
	var all []trace.Aggregation
	for i := range r.config.Metrics {
		name := fmt.Sprintf("metrics[%d]", i)
		if c := &r.config.Metrics[i]; c.Open != "" {
			open, err := c.parseOpen()
			if err == nil {
				open.source, err = r.open(name, &open.options,
					item{name: name, patterns: providers.Builtin().Patterns(open.pair),
						terms: termsOf(open.attributes, nil)})
			}
			if err != nil {
				return inField(name, err)
			}
			m.open = append(m.open, open)
			continue
		}
		parsed, err := r.config.Metrics[i].parse(r.config.Resource, r.config.CardinalityLimit)
		if err != nil {
			return inField(name, err)
		}
		m.metrics, all = append(m.metrics, parsed), append(all, parsed.aggregation)
		m.tables = append(m.tables, newTable(parsed, r.config.CardinalityLimit))
		items = append(items, item{name: name, patterns: parsed.patterns})
	}
	m.source = &source{name: "metrics", receiver: r}
	if len(m.metrics) > 0 {
		opts := aggregating(all...)
		m.aggregators = opts.Aggregators
		var err error
		if m.source, err = r.open("metrics", opts, items...); err != nil {
			return err
		}
	}
	r.metrics = m
	r.begin = append(r.begin, func(ctx context.Context) {
		r.running.Go(func() { r.each(ctx, "metrics", m.collect) })
	})
	return nil
}

// collect takes what the kernel has collected, and sends it.
func (m *metricsSource) collect(ctx context.Context) error {
	r := m.receiver
	var err error
	now := time.Now()
	// Each metric ends at a moment of its own, where its next points start.
	taken := make([]time.Time, len(m.metrics))
	for i := range m.metrics {
		var failed error
		if taken[i], failed = m.take(i); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", m.metrics[i].config.Name, failed))
			taken[i] = now
		}
	}
	b := newMetricsBuilder(r)
	since := now.Add(-r.config.EndAfter)
	for i, metric := range m.metrics {
		var ended []*series
		if r.config.Temporality == Cumulative {
			ended = m.tables[i].end(since, r.processes.hasGone)
		}
		b.add(metric, m.tables[i].all(), taken[i], false)
		b.add(metric, ended, taken[i], true)
	}
	for _, open := range m.open {
		err = errors.Join(err, inField(open.config.Name, open.collect(b, now)))
	}
	r.processes.forget(now.Add(-max(r.config.EndAfter, keepGone) - r.config.CollectionInterval))
	points := b.all.DataPointCount()
	if points == 0 {
		return err
	}
	ctx = r.report.StartMetricsOp(ctx)
	failed := r.next.metrics.ConsumeMetrics(ctx, b.all)
	r.report.EndMetricsOp(ctx, format, points, failed)
	// What was refused for now is in the next points, too: the tables have it.
	if r.config.Temporality == Delta && (failed == nil || consumererror.IsPermanent(failed)) {
		for _, t := range m.tables {
			t.sent()
		}
	}
	return errors.Join(err, failed)
}

// take adds what the kernel has collected of a metric to its series.
func (m *metricsSource) take(i int) (time.Time, error) {
	snapshot, err := m.aggregators[i].Take()
	if err != nil {
		return time.Time{}, err
	}
	keys := len(m.receiver.config.Resource.keys())
	m.sync(snapshot)
	for j := range snapshot.Rows {
		row := &snapshot.Rows[j]
		m.convert(func() {
			resource := m.receiver.processes.resourceOf(pidOf(row, keys), row.Keys[0].Uint())
			m.tables[i].add(row, row.Keys[keys:], resource, snapshot.Start, snapshot.Time)
		})
		m.items[i].hits.Add(row.Count)
	}
	m.items[i].hits.Add(snapshot.Other.Count)
	m.tables[i].addOverflow(&snapshot.Other, snapshot.Start, snapshot.Time)
	return snapshot.Time, nil
}

// pidOf returns the PID among the keys, or 0.
func pidOf(row *trace.Row, keys int) int {
	if keys < 2 {
		return 0
	}
	return int(row.Keys[1].Uint())
}

// sync scans processes that have hits and that the watch has not seen yet, so
// that their first hits get the same resource as the later ones.
func (m *metricsSource) sync(snapshot *trace.Snapshot) {
	keys := len(m.receiver.config.Resource.keys())
	synced := make(map[int]bool)
	for i := range snapshot.Rows {
		pid := pidOf(&snapshot.Rows[i], keys)
		if pid == 0 || synced[pid] || len(synced) == maxSynced || m.receiver.processes.knows(pid) {
			continue
		}
		synced[pid] = true
		m.receiver.sync(pid)
	}
}

// series is what has been collected of one combination of a resource and
// attributes.
type series struct {
	resource   *resource   // nil for what is over the limit
	attributes pcommon.Map // of its points
	start      time.Time   // what it has is from then on
	changed    time.Time   // when it last had a hit

	count     uint64
	sum       total
	min, max  float64
	noExtreme bool // min and max are not known
	buckets   tracing.Exponential
	explicit  []uint64 // counts of a histogram with limits
}

// total is a sum. What is larger than 64 bits comes as a float.
type total struct {
	integers  big.Int
	fractions float64
	inexact   bool
}

func (t *total) add(v trace.Value) {
	var n big.Int
	switch v.Kind() {
	case trace.Signed:
		t.integers.Add(&t.integers, n.SetInt64(v.Int()))
	case trace.Unsigned:
		t.integers.Add(&t.integers, n.SetUint64(v.Uint()))
	case trace.Float:
		t.fractions += v.Float()
		t.inexact = true
	}
}

// int returns the sum if it is an integer of 64 bits with a sign.
func (t *total) int() (sum int64, ok bool) {
	return t.integers.Int64(), !t.inexact && t.integers.IsInt64()
}

func (t *total) float() float64 {
	sum, _ := t.integers.Float64()
	return t.fractions + sum
}

func (s *series) add(m *metric, row *trace.Row, at time.Time) {
	e := row.Exponential()
	switch {
	case e != nil:
		s.buckets.Scale = e.Scale
		s.buckets.Add(e)
	case m.limits != nil:
		for _, b := range row.Histogram(0) {
			s.addBucket(m.limits, b)
		}
	}
	if row.Min.IsPresent() && row.Max.IsPresent() {
		if s.count == 0 || row.Min.Float() < s.min {
			s.min = row.Min.Float()
		}
		if s.count == 0 || row.Max.Float() > s.max {
			s.max = row.Max.Float()
		}
	}
	s.count += row.Count
	s.sum.add(row.Sum)
	s.changed = at
}

// addBucket adds a bucket to those that end at some limits, and the last one.
// The kernel's are these, or parts of them.
func (s *series) addBucket(limits []int64, b trace.Bucket) {
	if s.explicit == nil {
		s.explicit = make([]uint64, len(limits)+1)
	}
	end := len(limits)
	if b.High.Kind() == trace.Signed || b.High.Uint() <= math.MaxInt64 {
		end, _ = slices.BinarySearch(limits, b.High.Int())
	}
	s.explicit[end] += b.Count
}

// seriesID identifies a series of a metric by what its points say, whatever its
// attributes were in the traced program: integers with and without a sign, and
// texts that putValue replaces the same part of.
type seriesID struct {
	resource   *resource
	attributes string
}

// idOf returns that of attributes in the order of their names.
func idOf(r *resource, attributes pcommon.Map) seriesID {
	var b strings.Builder
	for name, value := range attributes.All() {
		fmt.Fprintf(&b, "%q=%d:%q ", name, value.Type(), value.AsString())
	}
	return seriesID{r, b.String()}
}

// table has the series of a metric. It is used by one goroutine at a time,
// except for kept and overHits.
type table struct {
	metric   *metric
	limit    int
	known    map[seriesID]*series
	overflow *series       // nil if nothing was over the limit
	kept     atomic.Int64  // how many series are known
	overHits atomic.Uint64 // that were over the limit, of all time
}

func newTable(m *metric, limit int) *table {
	return &table{metric: m, limit: limit, known: make(map[seriesID]*series)}
}

// all returns all series, in no order.
func (t *table) all() []*series {
	all := slices.Collect(maps.Values(t.known))
	if t.overflow != nil {
		all = append(all, t.overflow)
	}
	return all
}

// add adds what a row with these keys has, which the kernel has collected since
// the start.
func (t *table) add(row *trace.Row, keys []trace.Value, r *resource, start, end time.Time) {
	attributes := pcommon.NewMap()
	for i, v := range t.metric.edited(keys) {
		putValue(attributes, t.metric.attributes[i], v)
	}
	id := idOf(r, attributes)
	s := t.known[id]
	if s == nil {
		// The overflow series is one of the limit, as the specification has it.
		if len(t.known) >= t.limit-1 {
			t.addOverflow(row, start, end)
			return
		}
		s = &series{resource: r, attributes: attributes, start: start}
		t.known[id] = s
		t.kept.Add(1)
	}
	s.add(t.metric, row, end)
}

func (t *table) addOverflow(row *trace.Row, start, end time.Time) {
	if row.Count == 0 {
		return
	}
	if t.overflow == nil {
		// What the kernel had no room for has extremes of other intervals.
		t.overflow = &series{start: start, noExtreme: true, attributes: overflowAttributes()}
	}
	t.overHits.Add(row.Count)
	t.overflow.add(t.metric, row, end)
}

// overflowAttributes are what the metrics SDK specification has for the series
// of all that is over the limit.
func overflowAttributes() pcommon.Map {
	m := pcommon.NewMap()
	m.PutBool("otel.metric.overflow", true)
	return m
}

// sent forgets what has been sent, of a metric whose points are deltas.
func (t *table) sent() {
	clear(t.known)
	t.kept.Store(0)
	t.overflow = nil
}

// end forgets series that have ended, and returns them. Those have had no hit
// since then, and their process has gone.
func (t *table) end(since time.Time, gone func(*resource) bool) (ended []*series) {
	for id, s := range t.known {
		if s.changed.Before(since) && gone(s.resource) {
			ended = append(ended, s)
			delete(t.known, id)
			t.kept.Add(-1)
		}
	}
	return ended
}

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
// so that a backend does not go on with the one before. Each of these is alone
// in its metric: the Collector's Prometheus exporter reads no further than the
// first.
func (b *metricsBuilder) add(m *metric, all []*series, at time.Time, ended bool) {
	metrics := make(map[*resource]pmetric.Metric)
	var samples map[seriesID]*reservoir
	if m.kind == histogram && !ended {
		samples = m.exemplars.take(at)
	}
	for _, s := range all {
		to, ok := metrics[s.resource]
		if !ok || ended {
			to = b.metric(s.resource, m.config.Name, m.config.Description, m.unit)
			m.begin(to, b.temporality)
			metrics[s.resource] = to
		}
		switch {
		case m.limits != nil:
			p := to.Histogram().DataPoints().AppendEmpty()
			if s.begin(p, at, ended); !ended {
				s.fillHistogram(m, p, samples)
				p.ExplicitBounds().FromRaw(m.config.Buckets)
				p.BucketCounts().FromRaw(s.explicit)
			}
		case m.kind == histogram:
			p := to.ExponentialHistogram().DataPoints().AppendEmpty()
			if s.begin(p, at, ended); !ended {
				s.fillHistogram(m, p, samples)
				p.SetScale(int32(s.buckets.Scale))
				p.SetZeroCount(s.buckets.Zero)
				p.Positive().SetOffset(int32(s.buckets.Positive.Offset))
				p.Positive().BucketCounts().FromRaw(s.buckets.Positive.Counts)
				p.Negative().SetOffset(int32(s.buckets.Negative.Offset))
				p.Negative().BucketCounts().FromRaw(s.buckets.Negative.Counts)
			}
		default:
			p := to.Sum().DataPoints().AppendEmpty()
			if s.begin(p, at, ended); ended {
				continue
			}
			if m.kind == counter {
				p.SetIntValue(int64(s.count))
			} else if sum, ok := s.sum.int(); ok {
				p.SetIntValue(sum)
			} else {
				p.SetDoubleValue(s.sum.float())
			}
		}
	}
}

// begin says which kind of points follow.
func (m *metric) begin(to pmetric.Metric, temporality pmetric.AggregationTemporality) {
	switch {
	case m.limits != nil:
		to.SetEmptyHistogram().SetAggregationTemporality(temporality)
	case m.kind == histogram:
		to.SetEmptyExponentialHistogram().SetAggregationTemporality(temporality)
	default:
		sum := to.SetEmptySum()
		sum.SetAggregationTemporality(temporality)
		sum.SetIsMonotonic(m.kind == counter || m.config.Monotonic)
	}
}

// point is what all kinds of points have.
type point interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
	SetFlags(pmetric.DataPointFlags)
}

// begin sets all of a point but its value.
func (s *series) begin(p point, at time.Time, ended bool) {
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
	if !s.noExtreme {
		p.SetMin(s.min / m.divisor)
		p.SetMax(s.max / m.divisor)
	}
	if len(samples) > 0 {
		s.fillExemplars(m, samples[idOf(s.resource, s.attributes)], p)
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
	case v.Kind() == trace.Unsigned && v.Uint() > math.MaxInt64:
		// OTLP's integers have a sign. The specification wants a text.
		to.PutStr(name, strconv.FormatUint(v.Uint(), 10))
	default:
		to.PutInt(name, v.Int())
	}
}

// validText returns bytes of a traced program as the UTF-8 that OTLP wants. A
// text that was cut may end within a character.
func validText[T string | []byte](text T) string {
	return strings.ToValidUTF8(string(text), "\uFFFD")
}

// putText sets an attribute to a text of any origin. All texts that leave
// go through here or through validText: a backend that checks them refuses the
// batch of a whole node for one that is not UTF-8.
func putText[T string | []byte](to pcommon.Map, name string, text T) {
	to.PutStr(name, validText(text))
}
