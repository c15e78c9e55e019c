// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"fmt"
	"net"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/gousdt/gousdt/internal/testneeds"
	"github.com/gousdt/gousdt/internal/testprog"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
)

// points calls visit with each metric of a name in all that was sent.
func points(
	all []pmetric.Metrics, name string, visit func(pmetric.ResourceMetrics, pmetric.Metric),
) {
	for _, sent := range all {
		for _, resource := range sent.ResourceMetrics().All() {
			for _, scope := range resource.ScopeMetrics().All() {
				for _, m := range scope.Metrics().All() {
					if m.Name() == name {
						visit(resource, m)
					}
				}
			}
		}
	}
}

// Each hit is in the points once, whatever happens at the same time.
func TestMetricsCountEachTransaction(t *testing.T) {
	b := startBenchmark(t)
	for _, resource := range []string{"process", "container"} {
		for _, temporality := range []string{"delta", "cumulative"} {
			t.Run(resource+"/"+temporality, func(t *testing.T) {
				s, end := started(t, map[string]any{
					"temporality": temporality, "collection_interval": "20ms", "resource": resource,
					"metrics": []any{map[string]any{
						"name": "duration", "pair": "postgresql:query",
						"where":      ofTest,
						"attributes": map[string]any{"operation": "str(arg0, 6)"},
					}},
				})
				s.awaitAttached(b.File, "metrics")
				n := b.marked("-c", "4", "-t", "200")
				end()
				var counted uint64
				if temporality == "delta" {
					counted = s.sumOfDeltas("duration")
				} else {
					for _, p := range s.lastPoints("duration") {
						counted += p.count
					}
				}
				qt.Check(t, qt.Equals(counted, n))
			})
		}
	}
}

// A Go service has its latency by route, with no other change than its probes:
// its requests move between threads, and are matched by the goroutine.
func TestGoServiceIsMeasuredByRoute(t *testing.T) {
	testprog.RequireBPF(t)
	own, err := net.Listen("tcp", "127.0.0.1:0")
	qt.Assert(t, qt.IsNil(err))
	address := own.Addr().String()
	qt.Assert(t, qt.IsNil(own.Close()))
	path := testprog.Path(t, "go-shop")
	shop := exec.Command(path, "-listen", address)
	qt.Assert(t, qt.IsNil(shop.Start()))
	defer func() {
		_ = shop.Process.Kill()
		_ = shop.Wait()
	}()
	s, end := started(t, map[string]any{
		"temporality": "cumulative", "collection_interval": "50ms",
		"metrics": []any{map[string]any{
			"name": "http.server.request.duration", "unit": "s", "pair": "shop:request",
			"match_by": "arg6=arg4",
			"attributes": map[string]any{"http.route": "str(arg0, arg1)",
				"http.response.status_code": "arg2"},
		}},
	})
	s.awaitAttached(path, "metrics")
	request := func(send func() (*http.Response, error)) bool {
		answer, err := send()
		if err == nil {
			err = answer.Body.Close()
		}
		return err == nil
	}
	testneeds.Await(t, 10*time.Second, "the shop is open", func() bool {
		return request(func() (*http.Response, error) { return http.Get("http://" + address + "/none") })
	})
	const clients, each = 8, 100
	var wait sync.WaitGroup
	for range clients {
		wait.Go(func() {
			for i := range each {
				sent := request(func() (*http.Response, error) {
					if i%10 == 0 {
						return http.Post("http://"+address+"/orders", "text/plain", strings.NewReader("1"))
					}
					return http.Get(fmt.Sprintf("http://%s/items/%d", address, i))
				})
				qt.Check(t, qt.IsTrue(sent))
			}
		})
	}
	wait.Wait()
	end()
	counted := make(map[string]uint64)
	points(s.metrics.AllMetrics(), "http.server.request.duration",
		func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			last := make(map[string]uint64)
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				route, _ := p.Attributes().Get("http.route")
				last[route.AsString()] += p.Count()
			}
			for route, n := range last {
				counted[route] = max(counted[route], n)
			}
		})
	qt.Check(t, qt.DeepEquals(counted, map[string]uint64{
		"GET /items/{id}": clients * each * 9 / 10, "POST /orders": clients * each / 10}))
}

func (s *sinks) sumOfDeltas(name string) (sum uint64) {
	points(s.metrics.AllMetrics(), name, func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			sum += p.Count()
		}
	})
	return sum
}

// What is over the limit is in one series, so that nothing is missing.
func TestCardinalityLimit(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"resource": "container", "cardinality_limit": 4, "collection_interval": "50ms",
		"metrics": []any{map[string]any{
			"name": "queries", "count": "postgresql:query__start", "where": ofTest,
			"attributes": map[string]any{"text": "str(query, 40)"},
		}},
	})
	s.awaitAttached(b.File, "metrics")
	const n = 12
	for i := range n {
		b.Query(fmt.Sprintf("%s SELECT %d", mark, i))
	}
	end()
	sent := s.lastPoints("queries")
	qt.Check(t, qt.HasLen(sent, 4))
	var counted, over uint64
	for _, p := range sent {
		counted += p.count
		if p.flagged {
			over += p.count
		}
	}
	qt.Check(t, qt.Equals(counted, n))
	qt.Check(t, qt.Equals(over, n-3))
}

// A pipeline that refuses everything for a while gets what came meanwhile.
func TestRefusedMetricsComeLater(t *testing.T) {
	b := startBenchmark(t)
	for _, temporality := range []string{"delta", "cumulative"} {
		t.Run(temporality, func(t *testing.T) {
			s, end := started(t, map[string]any{
				"temporality": temporality, "collection_interval": "20ms",
				"metrics": []any{map[string]any{
					"name": "duration", "pair": "postgresql:query",
					"where": ofTest,
				}},
			})
			s.awaitAttached(b.File, "metrics")
			s.refuse.Store(true)
			n := b.marked("-c", "2", "-t", "100")
			s.refuse.Store(false)
			end()
			var counted uint64
			if temporality == "delta" {
				counted = s.sumOfDeltas("duration")
			} else {
				for _, p := range s.lastPoints("duration") {
					counted += p.count
				}
			}
			qt.Check(t, qt.Equals(counted, n))
		})
	}
}

// Whatever happens to the Collector, no program stays attached.
func TestNothingIsLeftAfterSIGKILL(t *testing.T) {
	b := startBenchmark(t)
	testprog.LeakCheck(t)
	child := startChild(t, b.File)
	b.transactions("-c", "2", "-t", "50")
	child.kill()
}

// A metric's points start where those before ended, whatever other metrics
// there are.
func TestIntervalsOfDeltasFollowEachOther(t *testing.T) {
	b := startBenchmark(t)
	var metrics []any
	for _, name := range []string{"a", "b", "c", "d"} {
		metrics = append(metrics, map[string]any{
			"name": name, "pair": "postgresql:query",
			"where": `str(query, 17) == "UPDATE pgbench_te"`,
		})
	}
	s, end := started(t, map[string]any{
		"temporality": "delta", "collection_interval": "20ms", "resource": "container",
		"metrics": metrics,
	})
	s.awaitAttached(b.File, "metrics")
	b.transactions("-c", "4", "-t", "200")
	end()
	for _, name := range []string{"a", "d"} {
		var last pcommon.Timestamp
		points(s.metrics.AllMetrics(), name, func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			for _, p := range m.ExponentialHistogram().DataPoints().All() {
				qt.Check(t,
					qt.IsTrue(p.StartTimestamp() >= last && p.Timestamp() > p.StartTimestamp()),
					qt.Commentf("%v to %v after %v", p.StartTimestamp(), p.Timestamp(), last))
				last = p.Timestamp()
			}
		})
		qt.Check(t, qt.IsTrue(last > 0))
	}
}

// A statement that takes long is seen while it does, and no longer.
func TestOpenCallsAreMeasured(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"collection_interval": "20ms",
		"metrics": []any{
			map[string]any{"name": "open", "open": "postgresql:query", "longer_than": "100ms",
				"where":      fmt.Sprintf("str(start.query, %d) == %q", len(mark), mark),
				"attributes": map[string]any{"text": "str(query)"}},
			map[string]any{"name": "duration", "pair": "postgresql:query"},
		},
	})
	s.awaitAttached(b.File, "metrics[0]")
	b.Query(mark + " SELECT pg_sleep(1)")
	var counts []int64
	var ages []float64
	read := func(name string, visit func(pmetric.NumberDataPoint)) {
		points(s.metrics.AllMetrics(), name, func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			for _, p := range m.Gauge().DataPoints().All() {
				if text, _ := p.Attributes().Get("text"); text.Str() == mark+" SELECT pg_sleep(1)" {
					visit(p)
				}
			}
		})
	}
	testneeds.Await(t, 10*time.Second, "a point of 0", func() bool {
		counts = counts[:0]
		read("open", func(p pmetric.NumberDataPoint) { counts = append(counts, p.IntValue()) })
		return len(counts) > 0 && counts[len(counts)-1] == 0
	})
	for range 10 { // no rate_limit leaves out any of them
		b.Query(mark + " SELECT 1")
	}
	qt.Check(t, qt.Equals(s.ownSum("hits_not_sampled", "metrics[0]"), 0))
	end()
	read("open.max_age", func(p pmetric.NumberDataPoint) { ages = append(ages, p.DoubleValue()) })
	qt.Assert(t, qt.HasLen(ages, len(counts)))
	for i := range counts[:len(counts)-1] {
		qt.Check(t, qt.Equals(counts[i], 1))
		qt.Check(t, qt.IsTrue(ages[i] > 0.1 && (i == 0 || ages[i] > ages[i-1])))
	}
	qt.Check(t, qt.Equals(ages[len(ages)-1], 0))
}

// A call that goes on is seen by the session of its spans, so that a hit runs
// one program and not two.
func TestOpenCallsShareTheSessionOfTheirSpans(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"collection_interval": "20ms",
		"metrics": []any{map[string]any{"name": "open", "open": "postgresql:statement",
			"longer_than": "100ms", "attributes": map[string]any{"of": "'postgresql'"}}},
		"spans": []any{map[string]any{"pair": "postgresql:statement", "longer_than": "100ms",
			"attributes": map[string]any{"text": "str(query)"}}},
	})
	s.awaitAttached(b.File, "spans[0]")
	b.Query("SELECT pg_sleep(1)")
	testneeds.Await(t, 10*time.Second, "a point of 0 after one of 1", func() bool {
		counts, ended := make(map[any]int64), false // by process: others have statements, too
		points(s.metrics.AllMetrics(), "open", func(r pmetric.ResourceMetrics, m pmetric.Metric) {
			pid := r.Resource().Attributes().AsRaw()["process.pid"]
			for _, p := range m.Gauge().DataPoints().All() {
				ended = ended || counts[pid] == 1 && p.IntValue() == 0
				counts[pid] = p.IntValue()
			}
		})
		return ended
	})
	end()
	qt.Check(t, qt.IsFalse(s.hasAttached(b.File, "metrics[0]")))
}

// A transaction that is open has the statement that it ran last, not the one
// that began it.
func TestOpenTransactionsHaveTheirLastStatement(t *testing.T) {
	b := startPostgres(t)
	s, end := started(t, map[string]any{
		"collection_interval": "20ms",
		"metrics": []any{map[string]any{"name": "open", "open": "postgresql:transaction",
			"where": `user == "gousdt"`, "longer_than": "10ms",
			"attributes": map[string]any{"last": "str(activity, 100)", "who": "str(user)"}}},
	})
	s.awaitAttached(b.File, "metrics[0]")
	b.Query("BEGIN", "SELECT 4711 AS gousdt", "SELECT pg_sleep(1)", "COMMIT")
	testneeds.Await(t, 10*time.Second, "the last statement", func() (found bool) {
		points(s.metrics.AllMetrics(), "open", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			for _, p := range m.Gauge().DataPoints().All() {
				last, _ := p.Attributes().Get("last")
				who, _ := p.Attributes().Get("who")
				found = found || last.Str() == "SELECT pg_sleep(1)" && who.Str() == "gousdt"
			}
		})
		return found
	})
	end()
}

// A Collector that reloads its configuration ends its receivers and makes new
// ones of the same factory. What has not changed misses nothing.
func TestReloadMissesNothing(t *testing.T) {
	b := startBenchmark(t)
	const room = 128 << 20 // a busy machine may read nothing while there are statements
	settings := map[string]any{
		"collection_interval": "50ms", "temporality": "delta",
		"metrics": []any{map[string]any{"name": "duration", "pair": "postgresql:statement",
			"where": ofTest}},
		"spans": []any{map[string]any{"pair": "postgresql:statement", "where": ofTest,
			"buffer_size": room}},
	}
	factory := usdtreceiver.NewFactoryThatParks(testneeds.Patience(2 * time.Second))
	s, end := startedBy(t, factory, settings)
	s.awaitAttached(b.File, "metrics", "spans[0]")
	all := []*sinks{s}
	done := make(chan uint64)
	go func() { done <- b.marked("-c", "2", "-T", "4") }()
	sent := uint64(0)
	for sent == 0 {
		end()
		s, end = startedBy(t, factory, settings)
		all = append(all, s)
		select {
		case sent = <-done:
		case <-time.After(100 * time.Millisecond): // it receives for a while
		}
	}
	end()
	counted, spans := uint64(0), uint64(0)
	for _, s := range all {
		counted += s.sumOfDeltas("duration")
		s.eachSpan(func(pcommon.Resource, ptrace.Span) { spans++ })
	}
	t.Logf("%d statements, %d times reloaded", sent, len(all)-1)
	qt.Check(t, qt.Equals(counted, sent))
	qt.Check(t, qt.Equals(spans, sent))
}

// One that is changed takes the place of the one before, which ends.
func TestReloadOfAnotherConfiguration(t *testing.T) {
	b := startBenchmark(t)
	factory := usdtreceiver.NewFactoryThatParks(testneeds.Patience(2 * time.Second))
	settings := func(name string) map[string]any {
		return map[string]any{"temporality": "delta", "metrics": []any{map[string]any{
			"name": name, "count": "postgresql:query__start", "where": ofTest}}}
	}
	for _, name := range []string{"first", "second"} {
		s, end := startedBy(t, factory, settings(name))
		s.awaitAttached(b.File, "metrics")
		n := b.marked("-t", "10")
		end()
		counted := int64(0)
		points(s.metrics.AllMetrics(), name, func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
			for _, p := range m.Sum().DataPoints().All() {
				counted += p.IntValue()
			}
		})
		qt.Check(t, qt.Equals(uint64(counted), n))
	}
}
