// SPDX-License-Identifier: BSD-2-Clause

package usdtreceiver

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gousdt/gousdt/container"
	"github.com/gousdt/gousdt/elfnote"
	"github.com/gousdt/gousdt/internal/tracing"
	"github.com/gousdt/gousdt/otelcol/usdtreceiver/internal/metadata"
	"github.com/gousdt/gousdt/providers"
	"github.com/gousdt/gousdt/trace"
)

// Config is the configuration of a receiver. README.md describes the settings.
type Config struct {
	// ScanInterval is how often all processes are scanned for files with wanted
	// probes. What the kernel reports to have started in between is scanned at
	// once.
	ScanInterval time.Duration `mapstructure:"scan_interval"`

	// CollectionInterval is how often metrics and profiles are sent.
	CollectionInterval time.Duration `mapstructure:"collection_interval"`

	// Temporality is of all metrics: "cumulative" or "delta".
	Temporality Temporality `mapstructure:"temporality"`

	// Resource is what is told apart by resources: "process" or "container".
	Resource ResourceKind `mapstructure:"resource"`

	// CardinalityLimit is how many series a metric can have, on this machine.
	// The hits of further ones are in the series with the attribute
	// otel.metric.overflow.
	CardinalityLimit int `mapstructure:"cardinality_limit"`

	// ResourceAttributes says which attributes resources have.
	ResourceAttributes metadata.ResourceAttributesConfig `mapstructure:"resource_attributes"`

	// EndAfter is how long the series of a process that has gone are still
	// sent.
	EndAfter time.Duration `mapstructure:"end_after"`

	// MeasureCost has the kernel measure how long the receiver's eBPF programs
	// run.
	MeasureCost bool `mapstructure:"measure_cost"`

	// Preset are names of software. The receiver knows what to measure of it:
	// "postgresql", "hotspot", "python".
	Preset []string `mapstructure:"preset,omitempty"`

	Metrics  []MetricConfig  `mapstructure:"metrics,omitempty"`
	Spans    []SpanConfig    `mapstructure:"spans,omitempty"`
	Logs     []LogConfig     `mapstructure:"logs,omitempty"`
	Profiles []ProfileConfig `mapstructure:"profiles,omitempty"`

	// prevent unkeyed literal initialization
	_ struct{}
}

// Temporality says from when on a point of a metric counts.
type Temporality string

// Values of [Config.Temporality].
const (
	Cumulative Temporality = "cumulative"
	Delta      Temporality = "delta"
)

// ResourceKind says what resources are.
type ResourceKind string

// Values of [Config.Resource].
const (
	ByProcess   ResourceKind = "process"
	ByContainer ResourceKind = "container"
)

const (
	// defaultScanInterval is that long because the kernel reports what starts.
	defaultScanInterval       = time.Minute
	defaultCollectionInterval = time.Minute
	// defaultCardinalityLimit is that of the metrics SDK specification.
	defaultCardinalityLimit = 2000
	defaultEndAfter         = 5 * time.Minute

	// maxCardinalityLimit bounds the memory of a metric: a series with a
	// histogram takes up to some kilobytes.
	maxCardinalityLimit = 1 << 20
)

func defaultConfig() *Config {
	return &Config{
		ScanInterval:       defaultScanInterval,
		CollectionInterval: defaultCollectionInterval,
		Temporality:        Cumulative,
		Resource:           ByProcess,
		CardinalityLimit:   defaultCardinalityLimit,
		ResourceAttributes: metadata.DefaultResourceAttributesConfig(),
		EndAfter:           defaultEndAfter,
	}
}

// Validate returns what is wrong with the configuration, as far as it can be
// known without the kernel.
func (c *Config) Validate() error {
	var all []error
	add := func(field string, err error) {
		if err != nil {
			all = append(all, inField(field, err))
		}
	}
	add("scan_interval", positive(c.ScanInterval))
	add("collection_interval", positive(c.CollectionInterval))
	if c.EndAfter < 0 {
		add("end_after", fmt.Errorf("%v is negative", c.EndAfter))
	}
	if c.Temporality != Cumulative && c.Temporality != Delta {
		add("temporality", fmt.Errorf("%q is neither %q nor %q", c.Temporality, Cumulative, Delta))
	}
	if c.Resource != ByProcess && c.Resource != ByContainer {
		add("resource", fmt.Errorf("%q is neither %q nor %q", c.Resource, ByProcess, ByContainer))
	}
	if c.CardinalityLimit < 1 || c.CardinalityLimit > maxCardinalityLimit {
		add("cardinality_limit",
			fmt.Errorf("%d is not from 1 to %d", c.CardinalityLimit, maxCardinalityLimit))
	}
	if len(c.Metrics)+len(c.Spans)+len(c.Logs)+len(c.Profiles) == 0 {
		all = append(all,
			errors.New("there is nothing to do: set preset, metrics, spans, logs or profiles"))
	}
	var names []string
	for i := range c.Metrics {
		field := fmt.Sprintf("metrics[%d]", i)
		if slices.Contains(names, c.Metrics[i].Name) {
			add(field, fmt.Errorf("the name %q is used twice", c.Metrics[i].Name))
		}
		names = append(names, c.Metrics[i].Name)
		add(field, c.Metrics[i].validate())
	}
	for i := range c.Spans {
		_, err := c.Spans[i].parse()
		add(fmt.Sprintf("spans[%d]", i), err)
	}
	for i := range c.Logs {
		_, err := c.Logs[i].parse()
		add(fmt.Sprintf("logs[%d]", i), err)
	}
	for i := range c.Profiles {
		_, err := c.Profiles[i].parse()
		add(fmt.Sprintf("profiles[%d]", i), err)
	}
	return errors.Join(all...)
}

func positive(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("%v is not positive", d)
	}
	return nil
}

// SpanConfig makes spans of the calls between two probes.
type SpanConfig struct {
	// Pair are the probes.
	Pair        string `mapstructure:"pair,omitempty"`
	MatchBy     string `mapstructure:"match_by,omitempty"`
	MatchDoneBy string `mapstructure:"match_done_by,omitempty"`
	// Name is that of the spans. Without it they are called as the pair's
	// probes are, without what tells start and end.
	Name string `mapstructure:"name,omitempty"`
	// Kind is that of the spans: "internal", "server" or "client".
	Kind string `mapstructure:"kind,omitempty"`
	// LongerThan is how long calls take that become spans.
	LongerThan time.Duration `mapstructure:"longer_than,omitempty"`
	// Where is a further condition on them, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are terms, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
	// Parent says where the context of the caller is.
	Parent *ParentConfig `mapstructure:"parent,omitempty"`
	// SampledOnly says that a call whose caller is not recorded becomes no
	// span. It is true where it is nil.
	SampledOnly *bool `mapstructure:"sampled_only,omitempty"`
	// BufferSize is how much room there is for spans in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size,omitempty"`
}

// ParentConfig says where a text with the context of the caller is.
type ParentConfig struct {
	// From is a term that is a text.
	From string `mapstructure:"from,omitempty"`
	// Format is "sqlcommenter" or "traceparent".
	Format string `mapstructure:"format,omitempty"`
}

// LogConfig makes log records of hits.
type LogConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event,omitempty"`
	// RateLimit is how many hits a second become records; 0 is all.
	RateLimit int `mapstructure:"rate_limit,omitempty"`
	// Where is a condition on them, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are terms, by the names of the attributes. Without any, all
	// arguments are attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
	// Parent says where the context of the span is that a record belongs to.
	Parent *ParentConfig `mapstructure:"parent,omitempty"`
	// BufferSize is how much room there is for events in the kernel, in bytes.
	BufferSize int `mapstructure:"buffer_size,omitempty"`
}

// ProfileConfig makes profiles of the stacks at hits.
type ProfileConfig struct {
	// Event is a pattern of probes.
	Event string `mapstructure:"event,omitempty"`
	// Where is a condition on hits, evaluated in the kernel.
	Where string `mapstructure:"where,omitempty"`
}

// MetricConfig is a metric. Exactly one of Pair, Open, Count, Sum and Histogram
// says which probes it is about, and what it is.
type MetricConfig struct {
	Name        string `mapstructure:"name,omitempty"`
	Description string `mapstructure:"description,omitempty"`
	// Unit is that of the metric. What is a time is in it: ns, us, ms or s.
	Unit string `mapstructure:"unit,omitempty"`

	// Pair makes the metric a histogram of the time between two probes.
	Pair string `mapstructure:"pair,omitempty"`
	// MatchBy and MatchDoneBy are Latency.By and DoneBy of package trace.
	MatchBy     string `mapstructure:"match_by,omitempty"`
	MatchDoneBy string `mapstructure:"match_done_by,omitempty"`

	// Open makes it a gauge of the calls between two probes that have started
	// and not ended.
	Open string `mapstructure:"open,omitempty"`
	// LongerThan is how long these have been going on at least.
	LongerThan time.Duration `mapstructure:"longer_than,omitempty"`

	// Count makes it the number of hits of probes.
	Count string `mapstructure:"count,omitempty"`
	// Sum makes it the sum of Value at the hits of probes.
	Sum string `mapstructure:"sum,omitempty"`
	// Histogram makes it a histogram of Value at the hits of probes.
	Histogram string `mapstructure:"histogram,omitempty"`
	// Value is a number at each hit, as in "arg1". With Pair it can be one of
	// the start, as in "start.arg1". The time is then not what is measured.
	Value string `mapstructure:"value,omitempty"`
	// Monotonic says that no Value is negative.
	Monotonic bool `mapstructure:"monotonic,omitempty"`
	// Buckets are the upper bounds of a histogram's buckets, in its unit. They
	// make it one with explicit bounds.
	Buckets []float64 `mapstructure:"buckets,omitempty"`
	// PerDoubling is how many buckets a histogram has from a number to its
	// double: 1, 2, 4, 8 or 16. 0 stands for 8.
	PerDoubling int `mapstructure:"per_doubling,omitempty"`

	// Where is a condition on the hits that count.
	Where string `mapstructure:"where,omitempty"`
	// Attributes are expressions, by the names of the attributes.
	Attributes map[string]string `mapstructure:"attributes,omitempty"`
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
	attributes  []string // names
	edits       []edit   // of the attributes
	divisor     float64  // what values are divided by: nanoseconds of a unit, or 1
	limits      []int64  // where buckets end, with explicit bounds
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

func (c *MetricConfig) parse(kind ResourceKind, limit int) (*metric, error) {
	m := &metric{config: c, unit: c.Unit, divisor: 1,
		attributes: slices.Sorted(maps.Keys(c.Attributes))}
	// There is room for more keys between two collections than for series: keys
	// with few hits in one interval must not lose their series to others.
	m.aggregation = trace.Aggregation{
		Value: c.Value, Where: c.Where, By: kind.keys(), MaxKeys: max(1<<14, 2*limit),
	}
	for _, name := range m.attributes {
		if name == "" {
			return nil, errors.New("attributes: one has no name")
		}
		if q := quotedTerm.FindStringSubmatch(strings.TrimSpace(c.Attributes[name])); q != nil {
			constant := trace.ValueOf(q[1] + q[2])
			m.edits = append(m.edits, edit{constant: &constant})
			continue
		}
		function, of := splitFunction(c.Attributes[name])
		if of == failureTerm {
			pair, err := elfnote.ParsePairPattern(c.Pair)
			if err != nil {
				return nil, inField("attributes."+name,
					fmt.Errorf("%s is for a pair: %w", of, err))
			}
			function, of = failures(pair), "probe"
		}
		// Attributes of one text share its key.
		own := len(kind.keys())
		key := slices.Index(m.aggregation.By[own:], of)
		if key < 0 {
			key = len(m.aggregation.By) - own
			m.aggregation.By = append(m.aggregation.By, of)
		}
		m.edits = append(m.edits, edit{key: key, function: function})
	}
	m.aggregation.Normalize = m.normalize(len(kind.keys()))
	if err := m.parseProbes(); err != nil {
		return nil, err
	}
	m.aggregation.Sum = m.kind == sum
	if m.kind != histogram {
		if c.PerDoubling != 0 || len(c.Buckets) > 0 {
			return nil, errors.New("per_doubling and buckets are for pair and histogram")
		}
		return m, nil
	}
	if !slices.Contains([]int{0, 1, 2, 4, 8, 16}, c.PerDoubling) {
		return nil, inField("per_doubling", fmt.Errorf("%d is not 1, 2, 4, 8 or 16", c.PerDoubling))
	}
	m.aggregation.Min, m.aggregation.Max = true, true
	m.aggregation.Histogram = trace.Exponential(c.PerDoubling, uint64(m.divisor))
	if len(c.Buckets) > 0 {
		if c.PerDoubling != 0 {
			return nil, errors.New("there are both buckets and per_doubling")
		}
		var err error
		if m.limits, err = limits(c.Buckets, m.divisor); err != nil {
			return nil, inField("buckets", err)
		}
		m.aggregation.Histogram = trace.Limits(slices.Compact(slices.Clone(m.limits))...)
	}
	return m, nil
}

// limits returns the greatest integers of buckets that end at some bounds,
// whose values are integers divided by a divisor.
func limits(bounds []float64, divisor float64) (all []int64, err error) {
	for i, bound := range bounds {
		if i > 0 && !(bound > bounds[i-1]) {
			return nil, fmt.Errorf("%v does not come after %v", bound, bounds[i-1])
		}
		// As it is written: 0.005 seconds are 5,000,000 ns, which the nearest
		// number that a float can be is not.
		exact, ok := new(big.Rat).SetString(strconv.FormatFloat(bound, 'g', -1, 64))
		if !ok {
			return nil, fmt.Errorf("%v is no number", bound)
		}
		exact.Mul(exact, new(big.Rat).SetFloat64(divisor))
		down, _ := new(big.Int).DivMod(exact.Num(), exact.Denom(), new(big.Int))
		if !down.IsInt64() || down.Int64() == math.MaxInt64 {
			return nil, fmt.Errorf("%v is too large", bound)
		}
		all = append(all, down.Int64())
	}
	return all, nil
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
		return fmt.Errorf("exactly one of pair, open, count, sum and histogram is wanted, not %d",
			len(given))
	}
	hasValue := given[0] == "sum" || given[0] == "histogram"
	switch {
	case hasValue && c.Value == "":
		return fmt.Errorf("%s needs a value, such as arg0", given[0])
	case !hasValue && c.Value != "" && given[0] != "pair":
		return fmt.Errorf("%s has no value: use sum, histogram or pair", given[0])
	case given[0] != "pair" && c.MatchBy+c.MatchDoneBy != "":
		return errors.New("match_by and match_done_by are for pair")
	case c.LongerThan != 0:
		return errors.New("longer_than is for open: for pair there is where: duration > 1s")
	case given[0] != "sum" && c.Monotonic:
		return errors.New("monotonic is for sum")
	}
	if given[0] == "pair" {
		return m.parsePair()
	}
	pattern, err := elfnote.ParsePattern(c.Count + c.Sum + c.Histogram)
	if err != nil {
		return inField(given[0], err)
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
		return inField("pair", err)
	}
	m.kind, m.patterns = histogram, providers.Builtin().Patterns(pair)
	if value := m.config.Value; value == "" || value == "duration" {
		m.unit = cmp.Or(m.unit, "ns")
		if m.divisor = timeUnits[m.unit]; m.divisor == 0 {
			return inField("unit", fmt.Errorf("that of a time is ns, us, ms or s, not %q", m.unit))
		}
	}
	m.aggregation.Latency = &trace.Latency{Pair: pair, By: m.config.MatchBy,
		DoneBy: m.config.MatchDoneBy}
	return nil
}

// timeUnits has how many nanoseconds the units of times are.
var timeUnits = map[string]float64{"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}

// metricName is what the metrics SDK specification allows.
var metricName = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9_./-]{0,254}$`)

func (c *MetricConfig) validate() error {
	if c.Name == "" {
		return errors.New("it has no name")
	}
	if !metricName.MatchString(c.Name) {
		return inField("name", fmt.Errorf("%q does not begin with a letter, or has more than "+
			"letters, digits, _, ., / and -", c.Name))
	}
	if c.Open != "" {
		_, err := c.parseOpen()
		return err
	}
	m, err := c.parse(ByProcess, defaultCardinalityLimit)
	if err != nil {
		return err
	}
	return ofOption(aggregating(m.aggregation).Validate(), func(key int) string {
		for i, e := range m.edits {
			if e.constant == nil && e.key == key-len(ByProcess.keys()) {
				return m.attributes[i]
			}
		}
		return "" // it is not of an attribute
	})
}

// sessionOptions are what all sessions have in common. open sets the machine's
// containers.
func sessionOptions(where string, events *trace.EventOptions) trace.SessionOptions {
	return trace.SessionOptions{Filter: where, Definitions: providers.Builtin(),
		Containers: new(container.Cgroups), Events: events}
}

// aggregating returns the options of a session that computes aggregations. The
// aggregator of each has its index.
func aggregating(all ...trace.Aggregation) *trace.SessionOptions {
	opts := sessionOptions("", nil)
	for _, a := range all {
		opts.Aggregators = append(opts.Aggregators, trace.NewAggregator(a))
	}
	return &opts
}

// fieldError says what is wrong with a field of the configuration.
type fieldError struct {
	field string // with those that it is in, as in metrics[2].attributes.query
	err   error
}

func (e *fieldError) Error() string { return e.field + ": " + e.err.Error() }

func (e *fieldError) Unwrap() error { return e.err }

// inField returns an error about a field, or about one in it; nil for nil.
func inField(field string, err error) error {
	if inner, ok := err.(*fieldError); ok {
		return &fieldError{field + "." + inner.field, inner.err}
	}
	if err != nil {
		return &fieldError{field, err}
	}
	return nil
}

// optionFields are the fields of the configuration that options of package
// trace are set by.
var optionFields = map[string]string{
	"Filter": "where", "Where": "where", "Value": "value", "Pair": "pair", "DoneBy": "match_done_by",
	"Histogram": "per_doubling", "MaxKeys": "cardinality_limit", "RingSize": "buffer_size",
	"Sampling": "rate_limit", "By": "attributes", "Captures": "attributes", "Arg": "attributes",
	"Max": "attributes", "Length": "attributes",
}

// ofOption returns an error of package trace as one about the configuration.
// attribute names the attribute of a key, if there are keys.
func ofOption(err error, attribute func(key int) string) error {
	var outer, option *tracing.OptionError
	for at := err; errors.As(at, &option); at = option.Err {
		if _, ok := option.Err.(*tracing.OptionError); ok {
			outer = option
		}
	}
	if option == nil {
		return err
	}
	field := optionFields[option.Field]
	switch {
	case option.Field == "By" && outer != nil && outer.Field != "Aggregators":
		field = "match_by"
	case option.Field == "By" && option.Index >= 0 && attribute != nil:
		field += "." + attribute(option.Index)
	}
	if field == "" {
		return err
	}
	return inField(field, option.Err)
}
