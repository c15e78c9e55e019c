// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
)

// An exemplar leads from a histogram to a span that is in it, in the trace of
// its caller.
func TestExemplarsLeadToSpans(t *testing.T) {
	b := startPostgres(t)
	for _, temporality := range []string{"cumulative", "delta"} {
		t.Run(temporality, func(t *testing.T) {
			s, end := started(t, map[string]any{
				"temporality": temporality,
				"metrics": []any{map[string]any{
					"name": "duration", "pair": "postgresql:query",
					"attributes": map[string]any{"db.operation.name": "str(query, 6)",
						"who": "comm"},
				}},
				"spans": []any{map[string]any{
					"pair":       "postgresql:query",
					"attributes": map[string]any{"db.query.text": "str(query)"},
					"parent":     map[string]any{"from": "str(query)", "format": "sqlcommenter"},
				}},
			})
			s.awaitAttached(b.File, "metrics", "spans[0]")
			b.Query("SELECT 0")
			const n = 8 // half of them are as many as a series has
			for i := range n {
				flags := i % 2 // every other trace is recorded
				b.Query(fmt.Sprintf("SELECT %d /*traceparent='00-%032x-%016x-%02x'*/", i, i+1,
					i+1000, flags))
				b.Query(fmt.Sprintf("VALUES (%d) /*traceparent='00-%032x-%016x-%02x'*/", i, i+101,
					i+2000, flags))
			}
			// All spans are sent, and so have been exemplars, before the last
			// points are made.
			end()

			spans := make(map[pcommon.SpanID]ptrace.Span)
			s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) { spans[span.SpanID()] = span })
			exemplars := make(map[string]int)
			points(s.metrics.AllMetrics(), "duration", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
				for _, p := range m.ExponentialHistogram().DataPoints().All() {
					operation, _ := p.Attributes().Get("db.operation.name")
					for _, e := range p.Exemplars().All() {
						span, ok := spans[e.SpanID()]
						qt.Assert(t, qt.IsTrue(ok))
						qt.Check(t, qt.Equals(e.TraceID(), span.TraceID()))
						qt.Check(t, qt.Equals(e.IntValue(),
							int64(span.EndTimestamp()-span.StartTimestamp())))
						qt.Check(t, qt.Equals(e.Timestamp(), span.EndTimestamp()))
						qt.Check(t, qt.IsTrue(e.Timestamp() >= p.StartTimestamp() &&
							e.Timestamp() <= p.Timestamp()))
						qt.Check(t, qt.IsFalse(span.ParentSpanID().IsEmpty()))
						qt.Check(t, qt.Equals(span.Flags()&1, 1))
						text, _ := span.Attributes().Get("db.query.text")
						qt.Check(t, qt.Equals(text.Str()[:6], operation.Str()))
						exemplars[operation.Str()]++
					}
				}
			})
			// Each query is one of another process. Those that ended before
			// they were scanned are one series.
			qt.Check(t, qt.DeepEquals(exemplars, map[string]int{"SELECT": n / 2, "VALUES": n / 2}))
		})
	}
}
