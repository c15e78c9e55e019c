// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/bits"
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
	for i := range r.config.Metrics {
		name := fmt.Sprintf("metrics[%d]", i)
		if c := &r.config.Metrics[i]; c.Open != "" {
			open, err := c.parseOpen()
			if err == nil {
				open.source, err = r.open(name, &open.options,
					item{name: name, patterns: providers.Builtin().Patterns(open.pair), terms: open.terms()})
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
		m.metrics = append(m.metrics, parsed)
		m.tables = append(m.tables, newTable(r.config.CardinalityLimit))
		items = append(items, item{name: name, patterns: parsed.patterns})
	}
	m.source = &source{name: "metrics", receiver: r}
	if len(m.metrics) > 0 {
		opts := metricOptions(m.metrics...)
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
	failed := r.nextMetrics.ConsumeMetrics(ctx, b.all)
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
			row.Keys = append(row.Keys[:keys:keys], m.metrics[i].edited(row.Keys[keys:])...)
			m.tables[i].add(row, keys, resource, snapshot.Start, snapshot.Time)
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

// all returns all series, in no order.
func (t *table) all() []*series {
	all := slices.Collect(maps.Values(t.known))
	if t.overflow != nil {
		all = append(all, t.overflow)
	}
	return all
}

// series is what has been collected of one combination of a resource and
// attributes.
type series struct {
	resource   *resource     // nil for what is over the limit
	attributes []trace.Value // in the order of metric.attributes; nil for what is over the limit
	start      time.Time     // what it has is from then on
	changed    time.Time     // when it last had a hit

	count     uint64
	sum       total
	min, max  float64
	noExtreme bool // min and max are not known
	buckets   exponential
	explicit  []trace.Bucket // of a histogram with limits, in order
}

// total is a sum. Its integers have 128 bits; what is larger than 64 bits comes
// as a float.
type total struct {
	high      int64
	low       uint64
	fractions float64
	inexact   bool
}

func (t *total) add(v trace.Value) {
	var carry uint64
	switch v.Kind() {
	case trace.Signed:
		t.low, carry = bits.Add64(t.low, v.Uint(), 0)
		t.high += v.Int()>>63 + int64(carry)
	case trace.Unsigned:
		t.low, carry = bits.Add64(t.low, v.Uint(), 0)
		t.high += int64(carry)
	case trace.Float:
		t.fractions += v.Float()
		t.inexact = true
	}
}

// int returns the sum if it is an integer of 64 bits with a sign.
func (t *total) int() (sum int64, ok bool) {
	return int64(t.low), !t.inexact && t.high == int64(t.low)>>63
}

func (t *total) float() float64 {
	if t.high == int64(t.low)>>63 {
		return t.fractions + float64(int64(t.low))
	}
	return t.fractions + float64(t.high)*0x1p64 + float64(t.low)
}

// exponential is a histogram that others are added to.
type exponential struct {
	scale              int32
	zero               uint64
	positive, negative buckets
}

func (e *exponential) add(h *tracing.Exponential) {
	e.scale = int32(h.Scale) // of one aggregation, so always the same
	e.zero += h.Zero
	e.positive.add(h.Positive)
	e.negative.add(h.Negative)
}

// buckets are counts of buckets whose indices follow each other.
type buckets struct {
	offset int
	counts []uint64
}

func (b *buckets) add(more tracing.Buckets) {
	if len(more.Counts) == 0 {
		return
	}
	if len(b.counts) == 0 {
		b.offset = more.Offset
	}
	first := min(b.offset, more.Offset)
	end := max(b.offset+len(b.counts), more.Offset+len(more.Counts))
	if first < b.offset || end > b.offset+len(b.counts) {
		wider := make([]uint64, end-first)
		copy(wider[b.offset-first:], b.counts)
		b.offset, b.counts = first, wider
	}
	for i, count := range more.Counts {
		b.counts[more.Offset-b.offset+i] += count
	}
}

func (s *series) add(row *trace.Row, at time.Time) {
	if row.Exponential != nil {
		s.buckets.add(row.Exponential)
	} else {
		for _, b := range row.Histogram(0) {
			if b.Count > 0 {
				s.addBucket(b)
			}
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

// addBucket adds a bucket with limits.
func (s *series) addBucket(b trace.Bucket) {
	i, found := slices.BinarySearchFunc(s.explicit, b,
		func(a, b trace.Bucket) int { return cmp.Compare(a.Low.Float(), b.Low.Float()) })
	if !found {
		s.explicit = slices.Insert(s.explicit, i, trace.Bucket{Low: b.Low, High: b.High})
	}
	s.explicit[i].Count += b.Count
}

// counts returns the counts of the buckets that end at some limits, and of the
// last one. The kernel's are these, or parts of them.
func (s *series) counts(limits []int64) []uint64 {
	counts := make([]uint64, len(limits)+1)
	for _, b := range s.explicit {
		end := len(limits)
		if b.High.Kind() == trace.Signed || b.High.Uint() <= math.MaxInt64 {
			end, _ = slices.BinarySearch(limits, b.High.Int())
		}
		counts[end] += b.Count
	}
	return counts
}

// seriesID identifies a series of a metric.
type seriesID struct {
	resource   *resource
	attributes string
}

// table has the series of a metric. It is used by one goroutine at a time,
// except for counts.
type table struct {
	limit    int
	known    map[seriesID]*series
	overflow *series // nil if nothing was over the limit
	kept     atomic.Int64
	overHits atomic.Uint64 // of all time
}

func newTable(limit int) *table {
	return &table{limit: limit, known: make(map[seriesID]*series)}
}

// add adds what a row has, which the kernel has collected since the start.
func (t *table) add(row *trace.Row, keys int, r *resource, start, end time.Time) {
	attributes := row.Keys[keys:]
	id := seriesID{r, identity(attributes)}
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
	s.add(row, end)
}

func (t *table) addOverflow(row *trace.Row, start, end time.Time) {
	if row.Count == 0 {
		return
	}
	if t.overflow == nil {
		// What the kernel had no room for has extremes of other intervals.
		t.overflow = &series{start: start, noExtreme: true}
	}
	t.overHits.Add(row.Count)
	t.overflow.add(row, end)
}

// sent forgets what has been sent, of a metric whose points are deltas.
func (t *table) sent() {
	clear(t.known)
	t.kept.Store(0)
	t.overflow = nil
}

// counts returns how many series there are, and how many hits were over the
// limit so far.
func (t *table) counts() (kept int64, overflow uint64) { return t.kept.Load(), t.overHits.Load() }

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

// identity is equal for attributes that are equal in points, whatever they were
// in the traced program: integers with and without a sign, and texts that
// putValue replaces the same part of.
func identity(attributes []trace.Value) string {
	var b []byte
	for _, v := range attributes {
		switch {
		case !v.IsPresent():
			b = append(b, '-')
		case v.Kind() == trace.Text:
			data, _ := v.Data()
			b = appendText(b, validText(data))
		case v.Kind() == trace.Float:
			b = binary.NativeEndian.AppendUint64(append(b, 'f'), math.Float64bits(v.Float()))
		case isLarge(v):
			b = appendText(b, strconv.FormatUint(v.Uint(), 10))
		default:
			b = binary.NativeEndian.AppendUint64(append(b, 'i'), v.Uint())
		}
	}
	return string(b)
}

func appendText(b []byte, text string) []byte {
	b = strconv.AppendInt(append(b, 't'), int64(len(text)), 10)
	return append(append(b, ' '), text...)
}

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
		b.receiver.fillScope(rm, scope.Scope())
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
		switch {
		case m.limits != nil:
			p := to.Histogram().DataPoints().AppendEmpty()
			s.fillHistogram(m, p, at, ended)
			if !ended {
				p.ExplicitBounds().FromRaw(m.config.Buckets)
				p.BucketCounts().FromRaw(s.counts(m.limits))
				s.fillExemplars(m, samples, p)
			}
		case m.kind == histogram:
			p := to.ExponentialHistogram().DataPoints().AppendEmpty()
			s.fillHistogram(m, p, at, ended)
			if !ended {
				p.SetScale(s.buckets.scale)
				p.SetZeroCount(s.buckets.zero)
				s.buckets.positive.fill(p.Positive())
				s.buckets.negative.fill(p.Negative())
				s.fillExemplars(m, samples, p)
			}
		default:
			s.fillNumber(m, to.Sum().DataPoints().AppendEmpty(), at, ended)
		}
	}
}

func (b *metricsBuilder) describe(to pmetric.Metric, m *metric) {
	to.SetName(m.config.Name)
	to.SetDescription(m.config.Description)
	to.SetUnit(m.unit)
	switch {
	case m.limits != nil:
		to.SetEmptyHistogram().SetAggregationTemporality(b.temporality)
		return
	case m.kind == histogram:
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

// histogramPoint is a point of either kind of histogram.
type histogramPoint interface {
	SetStartTimestamp(pcommon.Timestamp)
	SetTimestamp(pcommon.Timestamp)
	Attributes() pcommon.Map
	SetFlags(pmetric.DataPointFlags)
	SetCount(uint64)
	SetSum(float64)
	SetMin(float64)
	SetMax(float64)
	Exemplars() pmetric.ExemplarSlice
}

// fillHistogram sets all but the buckets.
func (s *series) fillHistogram(m *metric, p histogramPoint, at time.Time, ended bool) {
	p.SetStartTimestamp(pcommon.NewTimestampFromTime(s.start))
	p.SetTimestamp(pcommon.NewTimestampFromTime(at))
	s.fillAttributes(m, p.Attributes())
	if p.SetFlags(noValue(ended)); ended {
		return
	}
	p.SetCount(s.count)
	p.SetSum(s.sum.float() / m.divisor)
	if !s.noExtreme {
		p.SetMin(s.min / m.divisor)
		p.SetMax(s.max / m.divisor)
	}
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

// putText sets an attribute to a text of any origin. All texts that leave
// go through here or through validText: a backend that checks them refuses the
// batch of a whole node for one that is not UTF-8.
func putText[T string | []byte](to pcommon.Map, name string, text T) {
	to.PutStr(name, validText(text))
}
