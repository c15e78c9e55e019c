// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// points calls visit with each point of a metric in all that was sent.
func points(all []pmetric.Metrics, name string, visit func(pmetric.ResourceMetrics, pmetric.Metric)) {
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

func TestMetricsOfPostgreSQL(t *testing.T) {
	b := startBenchmark(t)
	s, end := started(t, map[string]any{
		"temporality": "delta", "collection_interval": "100ms",
		"metrics": []any{
			map[string]any{"name": "transactions", "count": "postgresql:transaction__commit"},
			map[string]any{"name": "duration", "pair": "postgresql:query", "attributes": map[string]any{"operation": "str(arg0, 6)"}},
		},
	})
	s.awaitAttached(b.File, "metrics")
	n := b.transactions("-c", "4", "-t", "200")
	end()
	var commits, updates, starts uint64
	points(s.metrics.AllMetrics(), "transactions", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		for _, p := range m.Sum().DataPoints().All() {
			commits += uint64(p.IntValue())
		}
	})
	points(s.metrics.AllMetrics(), "duration", func(_ pmetric.ResourceMetrics, m pmetric.Metric) {
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			switch operation, _ := p.Attributes().Get("operation"); operation.Str() {
			case "UPDATE":
				updates += p.Count()
			case "END;":
				starts += p.Count()
			}
		}
	})
	qt.Check(t, qt.Equals(updates, 3*n))
	qt.Check(t, qt.Equals(starts, n))
	// The server has transactions of its own.
	qt.Check(t, qt.IsTrue(commits >= n))
}
