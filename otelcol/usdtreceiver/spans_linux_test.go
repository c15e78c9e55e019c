// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// eachSpan calls visit with each span that was sent.
func (s *sinks) eachSpan(visit func(pcommon.Resource, ptrace.Span)) {
	for _, sent := range s.traces.AllTraces() {
		for _, resource := range sent.ResourceSpans().All() {
			for _, scope := range resource.ScopeSpans().All() {
				for _, span := range scope.Spans().All() {
					visit(resource.Resource(), span)
				}
			}
		}
	}
}

// A statement with a comment of sqlcommenter is a child of the span that sent
// it.
func TestSpansJoinTheTraceOfTheirCaller(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"spans": []any{map[string]any{
			"pair": "postgresql:query",
			"attributes": map[string]any{"db.query.text": "str(query, 200)", "took": "duration",
				"at.start": "str(start.arg0, 6)"},
			"where":  `str(query, 6) == "SELECT"`,
			"parent": map[string]any{"from": "str(arg0)", "format": "sqlcommenter"},
		}},
	})
	s.awaitAttached(b.File, "spans[0]")
	const n = 20
	sent := make(map[string]string) // span of the caller: trace
	for i := range n {
		trace, span := fmt.Sprintf("%032x", i+1), fmt.Sprintf("%016x", i+1000)
		sent[span] = trace
		b.Query(fmt.Sprintf("SELECT %d /*route='/x',traceparent='00-%s-%s-01'*/", i, trace, span))
	}
	b.Query("SELECT 'alone'")
	end()
	alone := 0
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) {
		qt.Check(t, qt.Equals(span.Name(), "postgresql:query"))
		took, _ := span.Attributes().Get("took")
		qt.Check(t, qt.Equals(int64(span.EndTimestamp()-span.StartTimestamp()), took.Int()))
		start, _ := span.Attributes().Get("at.start")
		qt.Check(t, qt.Equals(start.Str(), "SELECT"))
		if parent := span.ParentSpanID(); !parent.IsEmpty() {
			qt.Check(t, qt.Equals(sent[parent.String()], span.TraceID().String()))
			delete(sent, parent.String())
			return
		}
		// Other servers may be at work.
		if text, _ := span.Attributes().Get("db.query.text"); text.Str() == "SELECT 'alone'" {
			alone++
		}
	})
	qt.Check(t, qt.HasLen(sent, 0))
	qt.Check(t, qt.Equals(alone, 1))
}

// A query that fails is a span with the status error where the pair has the
// probe that it ends at, and is counted where it has not.
func TestSpansThatFail(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"spans": []any{
			map[string]any{"pair": "postgresql:query|transaction__abort", "name": "both"},
			map[string]any{"pair": "postgresql:query", "name": "usual"},
		},
	})
	s.awaitAttached(b.File, "spans[0]", "spans[1]")
	const n = 10
	for range n {
		b.Refuse("SELECT 1/0")
	}
	b.Query("SELECT 'fine'")
	missing := int64(0)
	var all metricdata.ResourceMetrics
	qt.Assert(t, qt.IsNil(s.own.Collect(t.Context(), &all)))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			var points []metricdata.DataPoint[int64]
			switch data := m.Data.(type) {
			case metricdata.Gauge[int64]:
				if m.Name == "otelcol_receiver_usdt_calls_unfinished" {
					points = data.DataPoints
				}
			case metricdata.Sum[int64]:
				if m.Name == "otelcol_receiver_usdt_hits_lost" {
					points = data.DataPoints
				}
			}
			for _, p := range points {
				source, _ := p.Attributes.Value("source")
				reason, lost := p.Attributes.Value("reason")
				if source.AsString() == "spans[1]" && (!lost || reason.AsString() == "start_without_end") {
					missing += p.Value
				}
			}
		}
	}
	qt.Check(t, qt.Equals(missing, n))
	end()
	got := make(map[string]int)
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) {
		got[span.Name()+" "+span.Status().Code().String()]++
	})
	qt.Check(t, qt.DeepEquals(got, map[string]int{"both Error": n, "both Unset": 1, "usual Unset": 1}))
}

// Drivers with parameters speak the extended protocol, in which a statement
// passes other probes than in the simple one.
func TestStatementsOfAllProtocols(t *testing.T) {
	b := startBenchmark(t)
	s, end := started(t, map[string]any{
		"temporality": "delta",
		"metrics": []any{
			map[string]any{"name": "duration", "pair": "postgresql:statement",
				"where":      `str(query, 6) == "SELECT"`,
				"attributes": map[string]any{"db.query.text": "query"}},
		},
		"spans": []any{map[string]any{
			"pair": "postgresql:statement", "where": `str(start.query, 6) == "SELECT"`,
			"attributes": map[string]any{"db.query.text": "str(query)"},
		}},
	})
	s.awaitAttached(b.File, "spans[0]", "metrics")
	sent := uint64(0)
	for _, protocol := range []string{"simple", "extended", "prepared"} {
		sent += b.transactions("-S", "-t", "20", "-M", protocol)
	}
	b.Refuse("SELECT 1/0")
	end()
	var selected, failed uint64
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) {
		text, _ := span.Attributes().Get("db.query.text")
		switch {
		case text.Str() == "SELECT 1/0":
			qt.Check(t, qt.Equals(span.Status().Code(), ptrace.StatusCodeError))
			failed++
		case strings.HasPrefix(text.Str(), "SELECT abalance"):
			qt.Check(t, qt.Equals(span.Name(), "postgresql:statement"))
			selected++
		}
	})
	qt.Check(t, qt.Equals(selected, sent))
	qt.Check(t, qt.Equals(failed, 1))
	qt.Check(t, qt.Equals(s.sumOfDeltas("duration"), sent+failed))
}
