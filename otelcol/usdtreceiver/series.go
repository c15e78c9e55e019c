// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gousdt/gousdt/trace"
)

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

func (e *exponential) add(h *trace.ExponentialHistogram) {
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

func (b *buckets) add(more trace.ExponentialBuckets) {
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

// add adds the hits of a row.
func (s *series) add(row *trace.Row, at time.Time) {
	if row.Exponential != nil {
		s.buckets.add(row.Exponential)
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
