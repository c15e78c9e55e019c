// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
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

	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/trace"
)

// metric is a MetricConfig that has been parsed, and its series. One goroutine
// at a time uses it, except for kept, overHits and exemplars.
type metric struct {
	config      *MetricConfig
	kind        metricKind
	unit        string
	divisor     float64 // what values are divided by: nanoseconds of a unit, or 1
	limits      []int64 // where buckets end, with explicit bounds
	patterns    []elfnote.Pattern
	attributes  []metricAttribute
	aggregation trace.Aggregation

	// With open there is a session of its own instead of an aggregation. Calls
	// that end are of no interest, so it sends hardly any event.
	options *trace.SessionOptions
	terms   []attribute

	source *source
	hits   *atomic.Uint64 // of its item

	limit     int
	known     map[seriesID]*series // the one of all over the limit has an empty ID
	kept      atomic.Int64         // how many others are known
	overHits  atomic.Uint64        // that were over the limit, of all time
	exemplars exemplars            // of a pair
}

// metricKind is what a metric is, by the setting that says so.
type metricKind string

const (
	ofPair      metricKind = "pair"
	ofOpen      metricKind = "open"
	ofCount     metricKind = "count"
	ofSum       metricKind = "sum"
	ofHistogram metricKind = "histogram"
)

// timeUnits maps units of time to their nanoseconds.
var timeUnits = map[string]float64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

func (c *MetricConfig) parse(resources ResourceKind, limit int) (*metric, error) {
	m := &metric{config: c, unit: c.Unit, divisor: 1,
		limit: limit, known: make(map[seriesID]*series)}
	given, probes := 0, ""
	for kind, text := range map[metricKind]string{ofPair: c.Pair, ofOpen: c.Open, ofCount: c.Count,
		ofSum: c.Sum, ofHistogram: c.Histogram} {
		if text != "" {
			given, m.kind, probes = given+1, kind, text
		}
	}
	is := func(kinds ...metricKind) bool { return slices.Contains(kinds, m.kind) }
	switch {
	case is(ofCount):
		m.unit = cmp.Or(m.unit, "{hit}")
	case is(ofPair) && (c.Value == "" || c.Value == "duration"):
		m.unit = cmp.Or(m.unit, "ns")
		m.divisor = timeUnits[m.unit]
	}
	if err := cmp.Or(
		wrong(given != 1,
			"exactly one of pair, open, count, sum and histogram is wanted, not %d", given),
		wrong(is(ofSum, ofHistogram) && c.Value == "", "%s needs a value, such as arg0", m.kind),
		wrong(is(ofCount, ofOpen) && c.Value != "",
			"%s has no value: use sum, histogram or pair", m.kind),
		wrong(!is(ofPair, ofOpen) && c.MatchBy != "",
			"match_by is for pair and open"),
		wrong(!is(ofOpen) && c.LongerThan != 0,
			"longer_than is for open: for pair there is where: duration > 1s"),
		wrong(c.LongerThan < 0, "longer_than: %v is negative", c.LongerThan),
		wrong(m.divisor == 0, "unit: that of a time is ns, us, ms or s, not %q", m.unit),
		wrong(is(ofOpen) && c.Unit != "", "unit: open counts calls, and has no other"),
		wrong(!is(ofSum) && c.Monotonic, "monotonic is for sum"),
		wrong(!is(ofPair, ofHistogram) && (c.PerDoubling != 0 || len(c.Buckets) > 0),
			"per_doubling and buckets are for pair and histogram"),
		wrong(!slices.Contains([]int{0, 1, 2, 4, 8, 16}, c.PerDoubling),
			"per_doubling: %d is not 1, 2, 4, 8 or 16", c.PerDoubling),
		wrong(c.PerDoubling != 0 && len(c.Buckets) > 0, "there are both buckets and per_doubling"),
	); err != nil {
		return nil, err
	}

	latency := trace.Latency{By: c.MatchBy}
	if is(ofPair, ofOpen) {
		var err error
		if m.patterns, err = trace.BuiltinDefinitions().Patterns(probes); err != nil {
			return nil, inField(string(m.kind), err)
		}
		latency.Pair = probes
	} else {
		pattern, err := elfnote.ParsePattern(probes)
		if err != nil {
			return nil, inField(string(m.kind), err)
		}
		m.patterns = []elfnote.Pattern{pattern}
	}
	if is(ofOpen) {
		return m, m.parseOpen(latency)
	}
	return m, m.parseAggregation(resources, latency)
}

// parseOpen sets the options of a session for calls that are open.
func (m *metric) parseOpen(latency trace.Latency) (err error) {
	c := m.config
	if m.terms, err = parseAttributes(c.Attributes, false); err != nil {
		return err
	}
	m.options = sessionOptions(c.Where, &trace.EventOptions{
		Spans: []trace.Latency{latency}, Captures: captures(termsOf(m.terms, nil)),
		SampleEvery: 1 << 30, RingSize: 64 << 10, // hardly any event comes
	})
	return ofOption(m.options.Validate())
}

// parseAggregation sets what the kernel adds up.
func (m *metric) parseAggregation(resources ResourceKind, latency trace.Latency) error {
	c := m.config
	// There is room for more keys between two collections than for series: keys
	// with few hits in one interval must not lose their series to others.
	a := &m.aggregation
	*a = trace.Aggregation{Value: c.Value, Where: c.Where, By: resources.keys(), Sum: m.kind == ofSum,
		MaxKeys: max(1<<14, 2*m.limit)}
	if m.kind == ofPair {
		a.Latency = &latency
	} else {
		a.Probes = m.patterns
	}
	if err := m.parseAttributes(); err != nil {
		return err
	}
	if m.isHistogram() {
		a.Min, a.Max = true, true
		a.Histogram = trace.Exponential(c.PerDoubling, uint64(m.divisor))
	}
	if len(c.Buckets) > 0 {
		var err error
		if m.limits, err = limits(c.Buckets, m.divisor); err != nil {
			return inField("buckets", err)
		}
		a.Histogram = trace.Limits(slices.Compact(slices.Clone(m.limits))...)
	}
	byKey := make([]string, len(a.By)) // names of attributes
	for _, of := range m.attributes {
		if of.constant == nil {
			byKey[of.key] = of.name
		}
	}
	return ofOption(aggregating(*a).Validate(), byKey...)
}

// isHistogram reports whether the points of a metric are histograms.
func (m *metric) isHistogram() bool { return m.kind == ofPair || m.kind == ofHistogram }

// limits returns the greatest integers of buckets that end at some bounds,
// whose values are integers divided by a divisor.
func limits(bounds []float64, divisor float64) (all []int64, err error) {
	for i, bound := range bounds {
		if i > 0 && !(bound > bounds[i-1]) {
			return nil, fmt.Errorf("%v does not come after %v", bound, bounds[i-1])
		}
		// As it is written: 0.005 seconds are 5,000,000 ns, which the nearest
		// number that a float can be is not.
		exact, ok := new(big.Rat).SetString(strconv.FormatFloat(bound, 'g', -1, 64))
		if !ok {
			return nil, fmt.Errorf("%v is not a number", bound)
		}
		exact.Mul(exact, new(big.Rat).SetFloat64(divisor))
		down, _ := new(big.Int).DivMod(exact.Num(), exact.Denom(), new(big.Int))
		if !down.IsInt64() || down.Int64() == math.MaxInt64 {
			return nil, fmt.Errorf("%v is too large", bound)
		}
		all = append(all, down.Int64())
	}
	return all, nil
}

// startMetrics opens one session for all metrics but those of open, which have
// one each, or that of spans of the same calls.
func (r *usdtReceiver) startMetrics() error {
	var items []item
	var all []trace.Aggregation
	for i := range r.config.Metrics {
		m, err := r.config.Metrics[i].parse(r.config.Resource, r.config.CardinalityLimit)
		if err != nil {
			return err
		}
		r.metrics = append(r.metrics, m)
		of := item{name: fmt.Sprintf("metrics[%d]", i), patterns: m.patterns,
			terms: termsOf(m.terms, nil)}
		if m.kind == ofOpen {
			if r.next.traces != nil && slices.ContainsFunc(r.config.Spans,
				func(c SpanConfig) bool { return c.haveCallsOf(m) }) {
				continue // startSpans opens the session
			}
			if m.source, err = r.open(of.name, m.options, of); err != nil {
				return err
			}
			m.source.unsent = true
			continue
		}
		r.aggregated, items = append(r.aggregated, m), append(items, of)
		all = append(all, m.aggregation)
	}
	if len(all) > 0 {
		s, err := r.open("metrics", aggregating(all...), items...)
		if err != nil {
			return err
		}
		for i, m := range r.aggregated {
			m.source, m.hits = s, s.items[i].hits
		}
	}
	r.collectors = append(r.collectors, collector{"metrics", r.collectMetrics})
	return nil
}

// collectMetrics sends what the kernel has collected.
func (r *usdtReceiver) collectMetrics(ctx context.Context) error {
	b, now := newMetricsBuilder(r), time.Now()
	isDelta := r.config.Temporality == Delta
	at := now // where the next points start
	var errs []error
	if len(r.aggregated) > 0 {
		snapshots, err := r.aggregated[0].source.session.Take() // up to one moment
		errs = append(errs, err)
		for i, s := range snapshots {
			r.aggregated[i].take(s)
			at = s.Time
		}
	}
	for _, m := range r.metrics {
		if m.kind == ofOpen {
			err := m.takeOpen(now)
			if err == nil {
				b.addOpen(m, now)
			}
			errs = append(errs, inField(m.config.Name, err))
			continue
		}
		var ended []*series
		if since := now.Add(-r.config.EndAfter); !isDelta {
			if r.accepted.Before(since) {
				since = r.accepted // what no consumer has taken is not forgotten
			}
			ended = m.end(since, r.processes.hasGone)
		}
		b.add(m, slices.Collect(maps.Values(m.known)), at, false)
		b.add(m, ended, at, true)
	}
	points := b.all.DataPointCount()
	if points == 0 {
		return errors.Join(errs...)
	}
	ctx = r.report.StartMetricsOp(ctx)
	err := r.next.metrics.ConsumeMetrics(ctx, b.all)
	r.report.EndMetricsOp(ctx, format, points, err)
	if err == nil {
		r.accepted = time.Now()
	}
	// What was refused for now is in the next points, too: the series keep it.
	if isDelta && (err == nil || consumererror.IsPermanent(err)) {
		for _, m := range r.aggregated {
			clear(m.known)
			m.kept.Store(0)
		}
	}
	return errors.Join(append(errs, err)...)
}

// maxSynced is how many processes that the watch has not seen yet are scanned
// for a metric in a collection.
const maxSynced = 64

// take adds what the kernel has collected to the series.
func (m *metric) take(snapshot *trace.Snapshot) {
	r := m.source.receiver
	pidOf := func(row *trace.Row) int {
		if r.config.Resource == ByContainer {
			return 0
		}
		return int(row.Keys[1].Uint())
	}
	// Processes that have hits and that the watch has not seen yet are scanned,
	// so that their first hits get the same resource as the later ones.
	synced := make(map[int]bool)
	for i := range snapshot.Rows {
		pid := pidOf(&snapshot.Rows[i])
		if pid != 0 && !synced[pid] && len(synced) < maxSynced && !r.processes.knows(pid, snapshot.Start) {
			synced[pid] = true
			_ = r.watch.Sync(context.Background(), pid) // what is wrong with it was reported to changed
		}
	}
	for i := range snapshot.Rows {
		row := &snapshot.Rows[i]
		m.source.convert(func() {
			resource := r.processes.resourceOf(pidOf(row), row.Keys[0].Uint())
			m.add(row, resource, snapshot.Start, snapshot.Time)
		})
		m.hits.Add(row.Count)
	}
	if other := &snapshot.Other; other.Count > 0 {
		m.hits.Add(other.Count)
		m.count(m.overflow(snapshot.Start), other, snapshot.Time)
	}
}

// takeOpen counts the calls that go on now in their series. A series whose last
// call has ended is 0 once, so that a backend does not keep its old value.
func (m *metric) takeOpen(now time.Time) error {
	open, err := m.source.session.OpenCalls(m.config.LongerThan)
	if err != nil {
		return err
	}
	before := m.known
	m.known = make(map[seriesID]*series)
	m.kept.Store(0)
	for _, call := range open {
		m.source.convert(func() {
			attributes := pcommon.NewMap()
			hit := *call.Start
			if len(call.Args) > 0 {
				hit.Args = call.Args // as they are now
			}
			for _, a := range m.terms {
				a.term.put(attributes, a.name, &hit)
			}
			s := m.seriesOf(m.source.resourceOf(call.Start), attributes, now)
			s.count++
			s.max = max(s.max, call.Duration.Seconds())
		})
	}
	for id, s := range before {
		if m.known[id] == nil && s.count > 0 {
			s.count, s.max = 0, 0
			m.known[id] = s
		}
	}
	return nil
}

// series is what has been collected of one combination of a resource and
// attributes.
type series struct {
	resource   *resource   // nil for what is over the limit
	attributes pcommon.Map // of its points
	start      time.Time   // what it has is from then on
	changed    time.Time   // when it last had a hit

	count    uint64
	sum      total
	min, max float64 // with open, max is the age of the oldest call in seconds
	buckets  tracing.Exponential
	explicit []uint64 // counts of a histogram with limits
}

// seriesID identifies a series of a metric by the attributes of its points.
// Different values in the traced program can be equal there: integers with and
// without a sign, and texts in which putText replaces bytes.
type seriesID struct {
	resource   *resource
	attributes string
}

// idOf returns the ID of a series. The attributes are in the order of their
// names.
func idOf(r *resource, attributes pcommon.Map) seriesID {
	var b strings.Builder
	for name, value := range attributes.All() {
		fmt.Fprintf(&b, "%q=%d:%q ", name, value.Type(), value.AsString())
	}
	return seriesID{r, b.String()}
}

// seriesOf returns the series with some attributes, or the overflow if it would
// be over the limit. A new series counts from start on.
func (m *metric) seriesOf(r *resource, attributes pcommon.Map, start time.Time) *series {
	id := idOf(r, attributes)
	if m.known[id] == nil {
		// The overflow series is one of the limit, as the specification has it.
		if int(m.kept.Load()) >= m.limit-1 {
			return m.overflow(start)
		}
		m.known[id] = &series{resource: r, attributes: attributes, start: start}
		m.kept.Add(1)
	}
	return m.known[id]
}

// overflow returns the series of all that is over the limit, with the attribute
// that the metrics SDK specification has for it.
func (m *metric) overflow(start time.Time) *series {
	s := m.known[seriesID{}]
	if s == nil {
		s = &series{start: start, attributes: pcommon.NewMap()}
		s.attributes.PutBool("otel.metric.overflow", true)
		m.known[seriesID{}] = s
	}
	return s
}

// end forgets series that have ended, and returns them. These have had no hit
// since then, and their process has gone.
func (m *metric) end(since time.Time, gone func(*resource) bool) (ended []*series) {
	for id, s := range m.known {
		if s.changed.Before(since) && gone(s.resource) {
			ended = append(ended, s)
			delete(m.known, id)
			m.kept.Add(-1)
		}
	}
	return ended
}

// add adds what the kernel has collected of a row since the start.
func (m *metric) add(row *trace.Row, r *resource, start, end time.Time) {
	attributes := pcommon.NewMap()
	for _, a := range m.attributes {
		putValue(attributes, a.name, a.of(row.Keys))
	}
	m.count(m.seriesOf(r, attributes, start), row, end)
}

func (m *metric) count(s *series, row *trace.Row, at time.Time) {
	if s.resource == nil {
		m.overHits.Add(row.Count)
	}
	for _, b := range row.Histogram(0) {
		if m.limits != nil {
			s.addBucket(m.limits, b)
		} else {
			s.buckets.Add(b.High.Float(), b.Index, b.Count)
		}
	}
	if row.Min.IsPresent() && row.Max.IsPresent() {
		least, most := row.Min.Float(), row.Max.Float()
		if s.count > 0 {
			least, most = min(s.min, least), max(s.max, most)
		}
		s.min, s.max = least, most
	}
	s.count += row.Count
	s.sum.add(row.Sum)
	s.changed = at
}

// addBucket adds a bucket of the kernel to the bucket of the series that it is
// a part of. limits are the ends of all buckets but the last.
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

// total is a sum. Values that no integer of 64 bits holds come as floats.
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
