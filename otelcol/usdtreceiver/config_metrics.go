// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// MetricConfig is a metric. Exactly one of Pair, Count, Sum and Histogram says
// which probes it is about, and what it is.
type MetricConfig struct {
	Name        string `mapstructure:"name"`
	Description string `mapstructure:"description"`
	Unit        string `mapstructure:"unit"`

	// Pair makes the metric a histogram of the time between two probes, in
	// nanoseconds.
	Pair string `mapstructure:"pair"`
	// MatchBy and MatchDoneBy are Latency.By and DoneBy of package trace.
	MatchBy     string `mapstructure:"match_by"`
	MatchDoneBy string `mapstructure:"match_done_by"`

	// Count makes it the number of hits of probes.
	Count string `mapstructure:"count"`
	// Sum makes it the sum of Value at the hits of probes.
	Sum string `mapstructure:"sum"`
	// Histogram makes it a histogram of Value at the hits of probes.
	Histogram string `mapstructure:"histogram"`
	// Value is a number at each hit, as in "arg1".
	Value string `mapstructure:"value"`
	// Monotonic says that no Value is negative.
	Monotonic bool `mapstructure:"monotonic"`
	// PerDoubling is how many buckets a histogram has from a number to its
	// double: 1, 2, 4, 8 or 16. 0 stands for 8.
	PerDoubling int `mapstructure:"per_doubling"`

	// Where is a condition on the hits that count.
	Where string `mapstructure:"where"`
	// Attributes are expressions, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes"`
}

// metricKind is what a metric is.
type metricKind int

const (
	counter metricKind = iota
	sum
	histogram
)

// metric is a MetricConfig that has been parsed.
type metric struct {
	config      *MetricConfig
	kind        metricKind
	unit        string
	patterns    []elfnote.Pattern
	attributes  []string // names, in the order of the keys behind the own ones
	aggregation trace.Aggregation
	exemplars   exemplars // of a pair
}

// keys are those by which an aggregation tells resources apart, before the keys
// for the attributes.
func (k ResourceKind) keys() []string {
	if k == ByContainer {
		return []string{"cgroup"}
	}
	return []string{"cgroup", "pid"}
}

// kernelKeys is how many keys a metric has room for between two collections.
// Only the series decide what is over the limit: keys with few hits in one
// interval must not lose their series to others.
func kernelKeys(limit int) int { return max(1<<14, 2*limit) }

func (c *MetricConfig) parse(kind ResourceKind, limit int) (*metric, error) {
	m := &metric{config: c, unit: c.Unit, attributes: slices.Sorted(maps.Keys(c.Attributes))}
	m.aggregation = trace.Aggregation{
		Value: c.Value, Where: c.Where, By: kind.keys(), MaxKeys: kernelKeys(limit),
	}
	for _, name := range m.attributes {
		if name == "" {
			return nil, errors.New("attributes: one has no name")
		}
		m.aggregation.By = append(m.aggregation.By, c.Attributes[name])
	}
	if err := m.parseProbes(); err != nil {
		return nil, err
	}
	if m.kind == histogram {
		m.aggregation.Histogram = &trace.Histogram{PerDoubling: c.PerDoubling}
		m.aggregation.Min, m.aggregation.Max = true, true
	}
	m.aggregation.Sum = m.kind == sum
	if m.kind != histogram && c.PerDoubling != 0 {
		return nil, errors.New("per_doubling is for pair and histogram")
	}
	return m, nil
}

func (m *metric) parseProbes() error {
	c := m.config
	var given []string
	for _, s := range []struct{ name, text string }{
		{"pair", c.Pair}, {"count", c.Count}, {"sum", c.Sum}, {"histogram", c.Histogram},
	} {
		if s.text != "" {
			given = append(given, s.name)
		}
	}
	if len(given) != 1 {
		return fmt.Errorf("exactly one of pair, count, sum and histogram is wanted, not %d",
			len(given))
	}
	hasValue := given[0] == "sum" || given[0] == "histogram"
	switch {
	case hasValue && c.Value == "":
		return fmt.Errorf("%s needs a value, such as arg0", given[0])
	case !hasValue && c.Value != "":
		return fmt.Errorf("%s has no value: use sum or histogram", given[0])
	case given[0] != "pair" && c.MatchBy+c.MatchDoneBy != "":
		return errors.New("match_by and match_done_by are for pair")
	case given[0] != "sum" && c.Monotonic:
		return errors.New("monotonic is for sum")
	}
	if given[0] == "pair" {
		return m.parsePair()
	}
	pattern, err := elfnote.ParsePattern(c.Count + c.Sum + c.Histogram)
	if err != nil {
		return fmt.Errorf("%s: %w", given[0], err)
	}
	m.patterns = []elfnote.Pattern{pattern}
	m.aggregation.Probes = m.patterns
	switch given[0] {
	case "count":
		m.kind = counter
		if m.unit == "" {
			m.unit = "{hit}"
		}
	case "sum":
		m.kind = sum
	case "histogram":
		m.kind = histogram
	}
	return nil
}

func (m *metric) parsePair() error {
	pair, err := elfnote.ParsePairPattern(m.config.Pair)
	if err != nil {
		return fmt.Errorf("pair: %w", err)
	}
	if m.unit != "" && m.unit != nanoseconds {
		return fmt.Errorf("unit: that of a pair is %q: its buckets are those of nanoseconds",
			nanoseconds)
	}
	m.kind, m.unit, m.patterns = histogram, nanoseconds, pair.Patterns()
	m.aggregation.Latency = &trace.Latency{Pair: pair, By: m.config.MatchBy,
		DoneBy: m.config.MatchDoneBy}
	return nil
}

const nanoseconds = "ns"

func (c *MetricConfig) validate() error {
	if c.Name == "" {
		return errors.New("it has no name")
	}
	m, err := c.parse(ByProcess, defaultCardinalityLimit)
	if err == nil {
		err = metricOptions(m).Validate()
	}
	return named(c.Name, err)
}

// metricOptions are those of a session that computes the metrics. The
// aggregator of each has its index. Who uses the options sets the machine's
// containers.
func metricOptions(metrics ...*metric) *trace.SessionOptions {
	opts := &trace.SessionOptions{NoEvents: true, Definitions: providers.Builtin(),
		Containers: new(container.Cgroups)}
	for _, m := range metrics {
		opts.Aggregators = append(opts.Aggregators, trace.NewAggregator(m.aggregation))
	}
	return opts
}

func named(name string, err error) error {
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
