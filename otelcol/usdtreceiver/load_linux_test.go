// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/internal/testneeds"
)

// mark begins the statements of this test program: other servers may be at
// work, also those of another run of these tests.
var mark = fmt.Sprintf("/*gousdt%d*/", os.Getpid())

var ofTest = fmt.Sprintf("str(query, %d) == %q", len(mark), mark)

// script is a pgbench script whose statements take 1 to 14 ms, but none from 4
// to 9, so that all clocks agree on which side of 6 ms one is. Each has a text
// of its own.
var script = `
\set n random(1, 1000000000)
\set t :n % 8
\set t CASE WHEN :t < 4 THEN :t ELSE :t + 6 END
` + mark + ` SELECT pg_sleep(:t / 1000.0), ':client_id :n';
`

var logged = regexp.MustCompile(`duration: ([0-9.]+) ms  statement: ([^;]*);`)

// What the receiver sends of PostgreSQL under load is what the server, its
// client and all single events say.
func TestPostgreSQLUnderLoad(t *testing.T) {
	b := startBenchmark(t)
	file := filepath.Join(t.TempDir(), "script")
	qt.Assert(t, qt.IsNil(os.WriteFile(file, []byte(script), 0o644)))
	s, end := started(t, map[string]any{
		"collection_interval": "200ms",
		"metrics": []any{
			map[string]any{"name": "duration", "pair": "postgresql:query", "where": ofTest},
			map[string]any{"name": "starts", "count": "postgresql:query__start", "where": ofTest},
		},
		"spans": []any{
			map[string]any{"name": "all", "pair": "postgresql:query", "where": ofTest},
			map[string]any{
				"name": "slow", "pair": "postgresql:query", "where": ofTest, "longer_than": "6ms",
				"attributes": map[string]any{"db.query.text": "str(query)"},
			},
		},
	})
	s.awaitAttached(b.File, "metrics", "spans[0]", "spans[1]")
	const clients = 4
	b.environment = []string{"PGOPTIONS=-c client_min_messages=log -c log_min_duration_statement=6"}
	out := b.run("-n", "-M", "simple", "-c", strconv.Itoa(clients), "-t", "100", "-f", file)
	n := transactionsOf(t, out)
	end()

	sent := s.lastPoints("duration")
	qt.Check(t, qt.HasLen(sent, clients)) // a process for each
	var counted uint64
	merged := &buckets{counts: make(map[int]uint64)}
	for _, p := range sent {
		counted += p.count
		merged.add(p)
		parent, _ := p.resource.Attributes().Get("process.parent_pid")
		qt.Check(t, qt.Equals(parent.Int(), int64(b.PID)))
		program, _ := p.resource.Attributes().Get("process.executable.name")
		qt.Check(t, qt.Equals(program.Str(), "postgres"))
	}
	qt.Check(t, qt.Equals(counted, n))
	counted = 0
	for _, p := range s.lastPoints("starts") {
		counted += p.count
	}
	qt.Check(t, qt.Equals(counted, n))

	var single []float64
	slow := make(map[string]time.Duration)
	s.eachSpan(func(_ pcommon.Resource, span ptrace.Span) {
		took := span.EndTimestamp() - span.StartTimestamp()
		if span.Name() == "all" {
			single = append(single, float64(took))
			return
		}
		text, _ := span.Attributes().Get("db.query.text")
		slow[text.Str()] = time.Duration(took)
	})
	qt.Assert(t, qt.HasLen(single, int(n)))
	slices.Sort(single)
	for _, q := range []float64{0.5, 0.95, 0.99} {
		exact := single[int(math.Ceil(q*float64(n)))-1]
		got := merged.quantile(q)
		qt.Check(t, qt.IsTrue(math.Abs(got-exact) <= 0.05*exact),
			qt.Commentf("p%v is %v, not %v", 100*q, got, exact))
	}

	said := logged.FindAllStringSubmatch(out, -1)
	qt.Check(t, qt.IsTrue(len(said) > int(n)/4))
	var differ []string
	for _, line := range said {
		if _, ok := slow[line[2]+";"]; !ok {
			differ = append(differ, fmt.Sprintf("no span for %s ms: %s", line[1], line[2]))
		}
		delete(slow, line[2]+";")
	}
	for text, took := range slow {
		if took > 6*time.Millisecond*105/100 {
			differ = append(differ,
				fmt.Sprintf("the server does not say that this took %v: %s", took, text))
		}
	}
	// The server may be interrupted between the probe and its own clock.
	qt.Check(t, qt.IsTrue(len(differ) <= int(n)/100), qt.Commentf("%q", differ))
}

// point is the last point of a series.
type point struct {
	resource pcommon.Resource
	count    uint64
	ended    bool
	flagged  bool // overflow
	metric   pmetric.ExponentialHistogramDataPoint
}

// lastPoints returns the last point of each series of a metric that is
// cumulative.
func (s *sinks) lastPoints(name string) map[string]point {
	last := make(map[string]point)
	points(s.metrics.AllMetrics(), name, func(resource pmetric.ResourceMetrics, m pmetric.Metric) {
		put := func(attributes pcommon.Map, p point) {
			id := fmt.Sprint(resource.Resource().Attributes().AsRaw(), attributes.AsRaw())
			_, p.flagged = attributes.Get("otel.metric.overflow")
			p.resource = resource.Resource()
			last[id] = p
		}
		if m.Type() == pmetric.MetricTypeSum {
			for _, p := range m.Sum().DataPoints().All() {
				put(p.Attributes(),
					point{count: uint64(p.IntValue()), ended: p.Flags().NoRecordedValue()})
			}
			return
		}
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			put(p.Attributes(),
				point{count: p.Count(), ended: p.Flags().NoRecordedValue(), metric: p})
		}
	})
	return last
}

// buckets are those of several histograms of scale 3.
type buckets struct{ counts map[int]uint64 }

func (b *buckets) add(p point) {
	for i, n := range p.metric.Positive().BucketCounts().All() {
		b.counts[int(p.metric.Positive().Offset())+i] += n
	}
}

// quantile returns what Prometheus does: it does not know where in a bucket a
// value is, and goes by the logarithm.
func (b *buckets) quantile(q float64) float64 {
	indices := make([]int, 0, len(b.counts))
	var all uint64
	for i, n := range b.counts {
		indices = append(indices, i)
		all += n
	}
	slices.Sort(indices)
	rank := q * float64(all)
	for _, i := range indices {
		n := float64(b.counts[i])
		if rank <= n {
			return math.Exp2((float64(i) + 0.5) / 8)
		}
		rank -= n
	}
	return math.NaN()
}

// Series of processes that have gone end, with a point that says so.
func TestSeriesOfProcessesEnd(t *testing.T) {
	b := startBenchmark(t)
	s, end := started(t, map[string]any{
		"collection_interval": "50ms", "end_after": "300ms",
		"metrics": []any{map[string]any{"name": "commits",
			"count": "postgresql:transaction__commit"}},
	})
	s.awaitAttached(b.File, "metrics")
	ofClients := func() (running, ended int) {
		for _, p := range s.lastPoints("commits") {
			parent, _ := p.resource.Attributes().Get("process.parent_pid")
			switch {
			case parent.Int() != int64(b.PID):
			case p.ended:
				ended++
			default:
				running++
			}
		}
		return running, ended
	}
	b.transactions("-c", "3", "-T", "1")
	testneeds.Await(t, 20*time.Second, "all series end", func() bool {
		running, ended := ofClients()
		return running == 0 && ended >= 3
	})
	end()
}
