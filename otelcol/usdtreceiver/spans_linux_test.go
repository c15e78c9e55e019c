// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
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
