// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/trace"
)

const (
	// maxExemplars is how many exemplars a point has. Backends keep fewer.
	maxExemplars = 4

	// maxExemplarSeries bounds the series of a metric whose exemplars wait for
	// the next points. The first series of an interval have the room.
	maxExemplarSeries = 1024

	// sampledFlag is the flag of a traceparent whose trace is recorded.
	sampledFlag = 1

	// defaultKeyText is how many bytes package trace reads of a text without a
	// limit that is a key.
	defaultKeyText = 64
)

// exemplar is a call that a histogram has counted, and the span that it became.
type exemplar struct {
	at    time.Time
	took  time.Duration
	trace pcommon.TraceID
	span  pcommon.SpanID
}

// exemplars are the exemplars of a metric that wait for the next points. One
// goroutine adds spans, another makes points.
type exemplars struct {
	mu       sync.Mutex
	bySeries map[seriesID]*reservoir
}

// reservoir is a random sample of the exemplars of a series: each has the same
// chance to stay.
type reservoir struct {
	seen int
	kept []exemplar
}

// spanExemplars makes the spans of one configuration exemplars of a metric.
type spanExemplars struct {
	attributes []attribute // those of the metric
	to         *exemplars
}

// exemplarsFor returns how spans become exemplars of a metric. ok is false
// unless each such span is a call whose time the metric has counted, with
// attributes that the span's event has: the same pair, matched alike; the same
// condition, or none of the metric; and attributes that are terms.
func exemplarsFor(m *metric, spans *spans) (attributes []attribute, ok bool) {
	latency, of := m.aggregation.Latency, spans.options.Events.Spans[0]
	value := m.aggregation.Value
	if latency == nil || *latency != of || value != "" && value != "duration" ||
		m.config.Where != "" && m.config.Where != spans.config.Where {
		return nil, false
	}
	attributes, err := parseAttributes(m.config.Attributes, true)
	for i := range attributes {
		if t := &attributes[i].term; t.source == textTerm && t.max == 0 {
			t.max = defaultKeyText
		}
	}
	return attributes, err == nil
}

// offer gives the metric a span that has joined a trace.
func (e *spanExemplars) offer(r *resource, event *trace.Event, span ptrace.Span, flags byte) {
	if flags&sampledFlag == 0 {
		return // the trace that it would lead to is not recorded
	}
	attributes := pcommon.NewMap()
	for _, a := range e.attributes {
		a.term.put(attributes, a.name, event)
	}
	e.to.mu.Lock()
	defer e.to.mu.Unlock()
	e.to.add(idOf(r, attributes), exemplar{
		at: event.Time, took: event.Duration, trace: span.TraceID(), span: span.SpanID(),
	})
}

func (e *exemplars) add(id seriesID, one exemplar) {
	r := e.bySeries[id]
	if r == nil {
		if len(e.bySeries) >= maxExemplarSeries {
			return
		}
		if e.bySeries == nil {
			e.bySeries = make(map[seriesID]*reservoir)
		}
		r = new(reservoir)
		e.bySeries[id] = r
	}
	r.seen++
	if len(r.kept) < maxExemplars {
		r.kept = append(r.kept, one)
	} else if i := rand.IntN(r.seen); i < maxExemplars {
		r.kept[i] = one
	}
}

// take returns the exemplars that wait. Those later than the points stay for
// the next ones.
func (e *exemplars) take(until time.Time) map[seriesID]*reservoir {
	e.mu.Lock()
	defer e.mu.Unlock()
	taken := e.bySeries
	e.bySeries = nil
	for id, r := range taken {
		r.kept = slices.DeleteFunc(r.kept, func(one exemplar) bool {
			isLater := one.at.After(until)
			if isLater {
				e.add(id, one)
			}
			return isLater
		})
	}
	return taken
}

// fillExemplars adds the exemplars of a point's interval to it.
func (s *series) fillExemplars(m *metric, r *reservoir, p histogramPoint) {
	if r == nil {
		return
	}
	for _, one := range r.kept {
		if one.at.Before(s.start) {
			continue // it was counted by a point that has been sent
		}
		e := p.Exemplars().AppendEmpty()
		e.SetTimestamp(pcommon.NewTimestampFromTime(one.at))
		if m.divisor == 1 {
			e.SetIntValue(one.took.Nanoseconds())
		} else {
			e.SetDoubleValue(float64(one.took) / m.divisor)
		}
		e.SetTraceID(one.trace)
		e.SetSpanID(one.span)
	}
}
