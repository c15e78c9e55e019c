// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"maps"
	"testing"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap/confmaptest"

	"github.com/gousdt/gousdt/otelcol/usdtreceiver"
)

func TestConfigStruct(t *testing.T) {
	qt.Assert(t,
		qt.IsNil(componenttest.CheckConfigStruct(usdtreceiver.NewFactory().CreateDefaultConfig())))
}

// The examples are valid, as a Collector reads them.
func TestExampleConfigs(t *testing.T) {
	all, err := confmaptest.LoadConf("../postgresql.yaml")
	qt.Assert(t, qt.IsNil(err))
	receiver, err := all.Sub("receivers::usdt")
	qt.Assert(t, qt.IsNil(err))
	c := configured(t, receiver.ToStringMap())
	qt.Assert(t, qt.IsNil(c.Validate()))
	qt.Check(t, qt.HasLen(c.Metrics, 2))
	qt.Check(t, qt.Equals(c.Metrics[0].Attributes["db.operation.name"], "str(query, 6)"))
	qt.Check(t, qt.Equals(c.CardinalityLimit, 2000))
}

// aMetric returns the settings of a metric with changes.
func aMetric(changes map[string]any) map[string]any {
	m := map[string]any{"name": "m", "count": "p:n"}
	maps.Copy(m, changes)
	return map[string]any{"metrics": []any{m}}
}

func TestConfigValidate(t *testing.T) {
	for _, test := range []struct {
		name     string
		settings map[string]any
		want     string // a pattern of the error, "" for none
	}{
		{"nothing to do", nil, `there is nothing to do.*`},
		{"a counter", aMetric(nil), ``},
		{"a sum", aMetric(map[string]any{"count": "", "sum": "p:n", "value": "arg0 & 0xff"}), ``},
		{"a histogram of values",
			aMetric(map[string]any{"count": "", "histogram": "p:n", "value": "arg1"}), ``},
		{"times",
			aMetric(map[string]any{"count": "", "pair": "p:query",
				"where": "duration > 1ms && start.arg0 == 3"}), ``},
		{"a condition on a container",
			aMetric(map[string]any{"where": `container == "4c01db"`}), ``},
		{"a name of an argument",
			aMetric(map[string]any{"attributes": map[string]any{"x": "str(query, 6)"}}), ``},
		{"no name", aMetric(map[string]any{"name": ""}), `metrics\[0\]: it has no name`},
		{"two kinds", aMetric(map[string]any{"pair": "p:query"}),
			`metrics\[0\]: m: exactly one of .*, not 2`},
		{"no kind", aMetric(map[string]any{"count": ""}),
			`metrics\[0\]: m: exactly one of .*, not 0`},
		{"no value", aMetric(map[string]any{"count": "", "sum": "p:n"}), `.*sum needs a value.*`},
		{"a value of nothing", aMetric(map[string]any{"value": "arg0"}), `.*count has no value.*`},
		{"a monotonic counter", aMetric(map[string]any{"monotonic": true}),
			`.*monotonic is for sum`},
		{"more buckets",
			aMetric(map[string]any{"count": "", "pair": "p:query", "per_doubling": 16}), ``},
		{"buckets that halve no bucket",
			aMetric(map[string]any{"count": "", "pair": "p:query", "per_doubling": 10}),
			`(?s).*Histogram.*`},
		{"buckets of a counter", aMetric(map[string]any{"per_doubling": 8}),
			`.*per_doubling is for pair and histogram`},
		{"a pattern", aMetric(map[string]any{"count": "p:["}), `(?s).*count: .*`},
		{"a pair", aMetric(map[string]any{"count": "", "pair": "p:a*..p:b"}), `(?s).*pair: .*`},
		{"seconds", aMetric(map[string]any{"count": "", "pair": "p:query", "unit": "s"}),
			`.*unit: that of a pair is "ns".*`},
		{"a condition", aMetric(map[string]any{"where": "arg0 =="}), `(?s).*Where.*`},
		{"a condition on a time of nothing", aMetric(map[string]any{"where": "duration > 1ms"}),
			`(?s).*Where.*`},
		{"an expression", aMetric(map[string]any{"attributes": map[string]any{"x": "str(arg0"}}),
			`(?s).*By.*`},
		{"an interval", map[string]any{"scan_interval": "0s", "metrics": aMetric(nil)["metrics"]},
			`scan_interval: 0s is not positive`},
		{"a limit", map[string]any{"cardinality_limit": 0, "metrics": aMetric(nil)["metrics"]},
			`cardinality_limit: 0 is not from 1 to .*`},
		{"a temporality", map[string]any{"temporality": "x", "metrics": aMetric(nil)["metrics"]},
			`temporality: "x" is neither .*`},
		{"a resource", map[string]any{"resource": "x", "metrics": aMetric(nil)["metrics"]},
			`resource: "x" is neither .*`},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := configured(t, test.settings).Validate()
			if test.want == "" {
				qt.Assert(t, qt.IsNil(err))
				return
			}
			qt.Assert(t, qt.ErrorMatches(err, test.want))
		})
	}
}
