// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/gousdt/gousdt/internal/testneeds"
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

// A statement whose server process is killed is a span that has failed.
func TestSpansOfKilledProcesses(t *testing.T) {
	b := startPostgres(t)
	sleep := mark + " SELECT pg_sleep(4711)"
	s, end := started(t, map[string]any{
		"spans": []any{map[string]any{"pair": "postgresql:statement", "where": ofTest,
			"attributes": map[string]any{"text": "str(query)", "took": "duration", "why": "error(probe)"}}},
	})
	s.awaitAttached(b.File, "spans[0]")
	psql := exec.Command(filepath.Join(filepath.Dir(b.File), "psql"), "-h", b.SocketDir, "-U", "gousdt",
		"-d", "postgres", "-c", sleep)
	qt.Assert(t, qt.IsNil(psql.Start()))
	pid := 0
	testneeds.Await(t, 10*time.Second, "it sleeps", func() bool {
		pid, _ = strconv.Atoi(b.Query("SELECT pid FROM pg_stat_activity WHERE wait_event = 'PgSleep'"))
		return pid != 0
	})
	qt.Assert(t, qt.IsNil(syscall.Kill(pid, syscall.SIGKILL)))
	_ = psql.Wait()
	end()
	var spans []ptrace.Span
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) { spans = append(spans, span) })
	qt.Assert(t, qt.HasLen(spans, 1))
	qt.Check(t, qt.Equals(spans[0].Status().Code(), ptrace.StatusCodeError))
	qt.Check(t, qt.Equals(spans[0].Status().Message(), "killed by SIGKILL"))
	attributes := spans[0].Attributes()
	text, _ := attributes.Get("text")
	qt.Check(t, qt.Equals(text.Str(), sleep))
	why, _ := attributes.Get("why")
	qt.Check(t, qt.Equals(why.Str(), "killed by SIGKILL"))
	took, _ := attributes.Get("took")
	qt.Check(t, qt.Equals(int64(spans[0].EndTimestamp()-spans[0].StartTimestamp()), took.Int()))
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
				"where": `str(query, 6) == "SELECT"`,
				"attributes": map[string]any{"db.query.text": "query", "db.namespace": "database",
					"client.address": "client", "user.name": "user"}},
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
	points(s.metrics.AllMetrics(), "duration", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		for _, point := range m.ExponentialHistogram().DataPoints().All() {
			for name, want := range map[string]string{"db.namespace": "postgres",
				"client.address": "[local]", "user.name": "gousdt"} {
				value, _ := point.Attributes().Get(name)
				qt.Check(t, qt.Equals(value.Str(), want))
			}
		}
	})
}

// A preset has what dashboards know, of statements in every protocol, exactly.
func TestPresetOfPostgreSQL(t *testing.T) {
	b := startBenchmark(t)
	s, end := started(t, map[string]any{
		"preset": "postgresql", "temporality": "delta",
		"spans": []any{map[string]any{
			"pair": "postgresql:statement", "kind": "server",
			"attributes": map[string]any{"summary": "summary(str(query, 300))",
				"text": "statement(query)", "type": "error(probe)"},
			"parent": map[string]any{"from": "str(query)", "format": "sqlcommenter"},
		}},
	})
	s.awaitAttached(b.File, "spans[0]", "metrics")
	sent := uint64(0)
	for _, protocol := range []string{"simple", "extended", "prepared"} {
		sent += b.transactions("-S", "-t", "20", "-M", protocol)
	}
	b.Refuse("SELECT 1/0")
	comment := func(flags string) string {
		return "/*traceparent='00-" + strings.Repeat("a", 32) + "-" + strings.Repeat("b", 16) +
			"-" + flags + "'*/"
	}
	b.Query("BEGIN "+comment("01"), "COMMIT")
	b.Query("BEGIN "+comment("00"), "ROLLBACK")
	b.Query("CREATE TABLE grown AS SELECT repeat('x', 100) FROM generate_series(1, 200000)")
	end()

	reads := int64(0)
	points(s.metrics.AllMetrics(), "postgresql.block.reads",
		func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			for _, p := range m.Sum().DataPoints().All() {
				reads += p.IntValue()
			}
		})
	qt.Check(t, qt.IsTrue(0 < reads && reads < 1000),
		qt.Commentf("%d with 3000 blocks that were added", reads))

	counts := make(map[string]uint64)
	var buckets uint64
	const name = "db.client.operation.duration"
	points(s.metrics.AllMetrics(), name, func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		qt.Check(t, qt.Equals(m.Unit(), "s"))
		for _, p := range m.Histogram().DataPoints().All() {
			qt.Check(t, qt.DeepEquals(p.ExplicitBounds().AsRaw(),
				[]float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10}))
			qt.Check(t, qt.IsTrue(p.Max() < 10 && p.Min() > 0 && p.Sum() >= p.Max()))
			for _, n := range p.BucketCounts().All() {
				buckets += n
			}
			has := p.Attributes().AsRaw()
			qt.Check(t, qt.Equals(has["db.system.name"], any("postgresql")))
			counts[fmt.Sprint(has["db.operation.name"], " ", has["error.type"])] += p.Count()
		}
	})
	qt.Check(t, qt.Equals(counts["SELECT <nil>"] >= sent, true), qt.Commentf("%v", counts))
	qt.Check(t, qt.Equals(counts["SELECT transaction__abort"], 1))
	all := uint64(0)
	for _, n := range counts {
		all += n
	}
	qt.Check(t, qt.Equals(buckets, all))

	spans := make(map[string]int)
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) {
		qt.Check(t, qt.Equals(span.Kind(), ptrace.SpanKindServer))
		has := span.Attributes().AsRaw()
		spans[fmt.Sprint(has["summary"], " ", has["type"])]++
		switch has["summary"] {
		case "BEGIN":
			qt.Check(t, qt.Equals(span.ParentSpanID().String(), strings.Repeat("b", 16)))
		case "COMMIT":
			qt.Assert(t, qt.Equals(span.Links().Len(), 1))
			qt.Check(t, qt.Equals(span.Links().At(0).TraceID().String(), strings.Repeat("a", 32)))
		case "ROLLBACK":
			qt.Check(t, qt.Equals(span.Links().Len(), 0))
		}
	})
	qt.Check(t, qt.Equals(spans["SELECT pgbench_accounts <nil>"], int(sent)))
	qt.Check(t, qt.Equals(spans["SELECT transaction__abort"], 1))
	qt.Check(t, qt.Equals(spans["BEGIN <nil>"], 1)) // one caller is not sampled
	qt.Check(t, qt.Equals(spans["COMMIT <nil>"], 1))
}
