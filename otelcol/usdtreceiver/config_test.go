// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver_test

import (
	"maps"
	"testing"
	"time"

	"github.com/go-quicktest/qt"
	"go.opentelemetry.io/collector/component/componenttest"
	"go.opentelemetry.io/collector/confmap"
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
	qt.Assert(t, qt.IsNil(confmap.Validate(c)))
	qt.Check(t, qt.HasLen(c.Metrics, 2))
	qt.Check(t, qt.Equals(c.Metrics[0].Attributes["db.operation.name"], "operation(query)"))
	qt.Check(t, qt.Equals(c.CardinalityLimit, 2000))
}

// A preset adds what the configuration has not.
func TestPresets(t *testing.T) {
	for preset, metrics := range map[string]int{"postgresql": 10, "hotspot": 3, "python": 3} {
		c := configured(t, map[string]any{"preset": preset})
		qt.Check(t, qt.IsNil(confmap.Validate(c)), qt.Commentf("%s", preset))
		qt.Check(t, qt.HasLen(c.Metrics, metrics), qt.Commentf("%s", preset))
	}
	c := configured(t, map[string]any{
		"preset": []any{"python", "postgresql"},
		"metrics": []any{map[string]any{"name": "db.client.operation.duration", "unit": "ms",
			"pair": "postgresql:query"}},
		"spans": []any{map[string]any{"pair": "postgresql:statement", "longer_than": "1s"}},
	})
	qt.Assert(t, qt.IsNil(confmap.Validate(c)))
	qt.Check(t, qt.HasLen(c.Metrics, 3+10))
	qt.Check(t, qt.Equals(c.Metrics[0].Unit, "ms"))
	qt.Assert(t, qt.HasLen(c.Spans, 1))
	qt.Check(t, qt.Equals(c.Spans[0].LongerThan, time.Second))
	for _, span := range []map[string]any{ // the same calls do not become spans twice
		{"pair": "postgresql:statement", "name": "own"},
		{"pair": "postgresql:query", "name": "postgresql:statement"},
	} {
		c = configured(t, map[string]any{"preset": "postgresql", "spans": []any{span}})
		qt.Check(t, qt.HasLen(c.Spans, 1), qt.Commentf("%v", span))
	}

	unknown := usdtreceiver.NewFactory().CreateDefaultConfig()
	err := confmap.NewFromStringMap(map[string]any{"preset": "oracle"}).Unmarshal(unknown)
	qt.Check(t, qt.ErrorMatches(err, `(?s).*preset: "oracle" is none of hotspot, postgresql, python.*`))
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
			aMetric(map[string]any{"count": "postgresql:query__start",
				"attributes": map[string]any{"x": "str(query, 6)"}}), ``},
		{"a name of another probe",
			aMetric(map[string]any{"attributes": map[string]any{"x": "str(query, 6)"}}),
			`metrics::0: attributes.x: .* p:n has no query`},
		{"a name that calls lack", aMetric(map[string]any{"count": "",
			"pair": "postgresql:statement", "attributes": map[string]any{"x": "start.relation"}}),
			`metrics::0: attributes.x: .* postgresql:statement has no relation; its keys are query, .*user, .*`},
		{"a condition on what calls lack", map[string]any{"spans": []any{map[string]any{
			"pair": "postgresql:statement", "where": "start.relation == 3"}}},
			`spans::0: where: .* postgresql:statement has no relation; its keys are query, .*user, .*`},
		{"no name", aMetric(map[string]any{"name": ""}), `metrics::0: it has no name`},
		{"two kinds", aMetric(map[string]any{"pair": "p:query"}),
			`metrics::0: exactly one of .*, not 2`},
		{"no kind", aMetric(map[string]any{"count": ""}),
			`metrics::0: exactly one of .*, not 0`},
		{"no value", aMetric(map[string]any{"count": "", "sum": "p:n"}), `.*sum needs a value.*`},
		{"a value of nothing", aMetric(map[string]any{"value": "arg0"}), `.*count has no value.*`},
		{"a monotonic counter", aMetric(map[string]any{"monotonic": true}),
			`.*monotonic is for sum`},
		{"more buckets",
			aMetric(map[string]any{"count": "", "pair": "p:query", "per_doubling": 16}), ``},
		{"buckets that halve no bucket",
			aMetric(map[string]any{"count": "", "pair": "p:query", "per_doubling": 10}),
			`metrics::0: per_doubling: 10 is not 1, 2, 4, 8 or 16`},
		{"buckets of a counter", aMetric(map[string]any{"per_doubling": 8}),
			`.*per_doubling and buckets are for pair and histogram`},
		{"a pattern", aMetric(map[string]any{"count": "p:["}), `(?s).*count: .*`},
		{"a pair", aMetric(map[string]any{"count": "", "pair": "p:a*..p:b"}), `(?s).*pair: .*`},
		{"seconds", aMetric(map[string]any{"count": "", "pair": "p:query", "unit": "s"}), ``},
		{"a unit that is none of times",
			aMetric(map[string]any{"count": "", "pair": "p:query", "unit": "By"}),
			`.*unit: that of a time is ns, us, ms or s, not "By"`},
		{"explicit bounds", aMetric(map[string]any{"count": "", "pair": "p:query", "unit": "s",
			"buckets": []any{0.005, 0.1, 2.5}}), ``},
		{"bounds that descend", aMetric(map[string]any{"count": "", "pair": "p:query",
			"buckets": []any{2, 1}}), `.*buckets: 1 does not come after 2`},
		{"bounds of two kinds", aMetric(map[string]any{"count": "", "pair": "p:query",
			"buckets": []any{1}, "per_doubling": 8}), `.*there are both buckets and per_doubling`},
		{"bounds of a counter", aMetric(map[string]any{"buckets": []any{1}}),
			`.*per_doubling and buckets are for pair and histogram`},
		{"a name", aMetric(map[string]any{"name": "1st"}), `.*name: "1st" does not begin .*`},
		{"functions", aMetric(map[string]any{"count": "", "pair": "postgresql:statement",
			"attributes": map[string]any{"a": "operation(query)", "b": "summary(str(query, 99))",
				"c": "'x'", "d": "error(probe)"}}), ``},
		{"a failure of a counter",
			aMetric(map[string]any{"attributes": map[string]any{"a": "error(probe)"}}),
			`(?s).*error\(probe\) is for a pair.*`},
		{"a condition", aMetric(map[string]any{"where": "arg0 =="}), `metrics::0: where: expression .*`},
		{"a condition on a time of nothing", aMetric(map[string]any{"where": "duration > 1ms"}),
			`metrics::0: where: duration, failed .*`},
		{"an expression", aMetric(map[string]any{
			"attributes": map[string]any{"a": "'constant'", "x": "str(arg0"}}),
			`metrics::0: attributes.x: expression .*`},
		{"a text of a span", map[string]any{"spans": []any{map[string]any{"pair": "p:n",
			"attributes": map[string]any{"x": "arg0 +"}}}}, `spans::0: attributes.x: .*`},
		{"what a span is matched by", map[string]any{"spans": []any{map[string]any{"pair": "p:n",
			"match_by": "arg0 =="}}}, `spans::0: match_by: .*`},
		{"a condition of a log", map[string]any{"logs": []any{map[string]any{"event": "p:n",
			"where": "x +"}}}, `logs::0: where: .*`},
		{"where the caller is", map[string]any{"logs": []any{map[string]any{"event": "p:n",
			"parent": map[string]any{"from": "arg0", "format": "traceparent"}}}},
			`logs::0: parent: from: a string is wanted.*`},
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
			err := confmap.Validate(configured(t, test.settings))
			if test.want == "" {
				qt.Assert(t, qt.IsNil(err))
				return
			}
			qt.Assert(t, qt.ErrorMatches(err, test.want))
		})
	}
}
