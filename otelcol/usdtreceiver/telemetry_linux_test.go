// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
)

// What the receiver says of itself is what metadata.yaml describes, and true.
func TestOwnMetrics(t *testing.T) {
	b := startPostgres(t)
	settings := aMetric(map[string]any{"count": "postgresql:query__start"})
	settings["measure_cost"] = true
	settings["spans"] = []any{map[string]any{"pair": "postgresql:query"}}
	s, _ := started(t, settings)
	s.awaitAttached(b.File, "metrics", "spans[0]")
	b.Query("SELECT 1")

	described := readMetadata(t)
	got := make(map[string]metricdata.Metrics)
	var all metricdata.ResourceMetrics
	qt.Assert(t, qt.IsNil(s.own.Collect(t.Context(), &all)))
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if name, ok := strings.CutPrefix(m.Name, "otelcol_receiver_usdt"); ok {
				name = "receiver_usdt" + name
				got[name] = m
				qt.Check(t, qt.Equals(m.Unit, described.Telemetry.Metrics[name].Unit))
				wanted := described.Telemetry.Metrics[name]
				qt.Check(t, qt.Equals(m.Description, wanted.Description+" [Development]"))
				kind, attributes := kindOf(m.Data)
				qt.Check(t, qt.Equals(kind, wanted.kind()), qt.Commentf("%s", name))
				for _, set := range attributes {
					var keys []string
					for _, a := range set.ToSlice() {
						keys = append(keys, string(a.Key))
						if enum := described.Attributes[string(a.Key)].Enum; len(enum) > 0 {
							qt.Check(t, qt.SliceContains(enum, a.Value.AsString()))
						}
					}
					qt.Check(t, qt.ContentEquals(keys, wanted.Attributes), qt.Commentf("%s", name))
				}
			}
		}
	}
	qt.Check(t, qt.DeepEquals(slices.Sorted(maps.Keys(got)),
		slices.Sorted(maps.Keys(described.Telemetry.Metrics))))
	for _, p := range got["receiver_usdt_sites"].Data.(metricdata.Gauge[int64]).DataPoints {
		source, _ := p.Attributes.Value("source")
		// Another PostgreSQL may be watched, too.
		qt.Check(t,
			qt.IsTrue(p.Value >= map[string]int64{"metrics": 1, "spans[0]": 2}[source.AsString()]))
	}
	qt.Check(t,
		qt.IsTrue(got["receiver_usdt_processes"].Data.(metricdata.Gauge[int64]).DataPoints[0].Value > 0))
	for _, p := range got["receiver_usdt_program_time"].Data.(metricdata.Sum[float64]).DataPoints {
		qt.Check(t, qt.IsTrue(p.Value > 0))
	}
}

// kindOf returns what a metric is, and the attributes of its points.
func kindOf(data metricdata.Aggregation) (kind metadataKind, all []attribute.Set) {
	switch d := data.(type) {
	case metricdata.Gauge[int64]:
		kind = metadataKind{"gauge", "int", false}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Sum[int64]:
		kind = metadataKind{"sum", "int", d.IsMonotonic}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	case metricdata.Sum[float64]:
		kind = metadataKind{"sum", "double", d.IsMonotonic}
		for _, p := range d.DataPoints {
			all = append(all, p.Attributes)
		}
	}
	return kind, all
}
